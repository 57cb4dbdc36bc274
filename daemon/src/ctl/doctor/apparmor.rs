//! The AppArmor profile that Ubuntu wants before a program may build namespaces.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use anyhow::{Context as _, bail};

/// A profile and what to know about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) text: String,
    pub(super) advice: String,
}

/// The profile for the daemon at this path, which has no symlinks in it: the kernel goes by the real file.
///
/// # Errors
/// The path has characters that mean something to AppArmor.
pub(super) fn profile(ptcd: &Path) -> anyhow::Result<Profile> {
    let path = ptcd.to_str().with_context(|| format!("the path `{}` is not UTF-8", ptcd.display()))?;
    if path.contains(|c: char| c.is_control() || "\"*?[]{}^\\@".contains(c)) {
        bail!("the path `{path}` has characters that AppArmor reads as a pattern; move ptcd elsewhere");
    }
    let text = format!(
        "# Lets ptcd build the sandbox of each program out of user namespaces, which Ubuntu 23.10 and later forbid\n\
         # to programs without a profile. It restricts nothing.\n\
         abi <abi/4.0>,\n\
         include <tunables/global>\n\n\
         profile ptcd \"{path}\" flags=(unconfined) {{\n  userns,\n\n  include if exists <local/ptcd>\n}}\n"
    );
    let mut advice = "Load it with:\n  ptcctl doctor --apparmor-profile | sudo tee /etc/apparmor.d/ptcd >/dev/null\n  \
                      sudo apparmor_parser -r /etc/apparmor.d/ptcd\nThen restart the daemon.\n"
        .to_owned();
    if !is_roots(ptcd) {
        advice.push_str(&format!(
            "Warning: `{path}` can be replaced without root's rights, and whatever is put there gets namespaces too.\n\
             Better: sudo install ptcd ptcctl ptc-shim /usr/local/bin/, and use those.\n"
        ));
    }
    Ok(Profile { text, advice })
}

/// Whether root alone can change the file or any folder above it.
fn is_roots(file: &Path) -> bool {
    file.ancestors().all(|path| std::fs::metadata(path).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o022 == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_names_the_real_path_and_warns_about_a_home() {
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let ptcd = home.path().join("my ptcd");
        let profile = profile(&ptcd).unwrap();
        assert!(
            profile.text.contains(&format!("profile ptcd \"{}\" flags=(unconfined) {{\n  userns,\n", ptcd.display()))
        );
        assert!(profile.advice.contains("Warning"), "{}", profile.advice);
    }

    #[test]
    fn patterns_in_the_path_are_refused() {
        for path in ["/a*/ptcd", "/a\"b/ptcd", "/@{HOME}/ptcd", "/a\nb"] {
            assert!(profile(Path::new(path)).is_err(), "{path}");
        }
    }
}
