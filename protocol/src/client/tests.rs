use super::*;
#[test]
fn escaped_names_are_one_segment() {
    assert_eq!(escape("a/b c?ä"), "a%2Fb%20c%3F%C3%A4");
}
