//! Reads parts of raw JSON text without making a tree of it, and without failing over keys or strings that no Rust
//! string can hold.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON string's text; lone surrogates, which no Rust string can hold, become U+FFFD.
pub(super) fn string(raw: &RawValue) -> Option<String> {
    struct Lossy;
    impl Visitor<'_> for Lossy {
        type Value = String;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }
    if !raw.get().starts_with('"') {
        return None;
    }
    serde_json::Deserializer::from_str(raw.get()).deserialize_bytes(Lossy).ok()
}

/// The named members of a JSON object, the last of each name; none when the text is no object. Other members are
/// skipped, and no key can make it fail.
pub(super) fn members<'a, const N: usize>(raw: &'a RawValue, names: [&str; N]) -> Option<[Option<&'a RawValue>; N]> {
    struct Pick<'n, const N: usize>([&'n str; N]);
    impl<'de, const N: usize> Visitor<'de> for Pick<'_, N> {
        type Value = [Option<&'de RawValue>; N];
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = [None; N];
            while let Some(at) = map.next_key_seed(Key(&self.0))? {
                match at {
                    Some(at) => found[at] = Some(map.next_value::<&'de RawValue>()?),
                    None => {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
            }
            Ok(found)
        }
    }
    if !raw.get().starts_with('{') {
        return None;
    }
    serde_json::Deserializer::from_str(raw.get()).deserialize_map(Pick(names)).ok()
}

/// Reads a key as its place in a list of names.
struct Key<'n, 'k>(&'n [&'k str]);

impl<'de> DeserializeSeed<'de> for Key<'_, '_> {
    type Value = Option<usize>;
    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Key<'_, '_> {
    type Value = Option<usize>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_bytes<E>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| name.as_bytes() == key))
    }
    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}
