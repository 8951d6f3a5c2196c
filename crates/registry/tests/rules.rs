//! Every rule that a difference can bear is in the guide.

use std::path::Path;

/// The words in quotes that are all capitals: `"TYPE_CHANGED"`.
fn rules(text: &str) -> Vec<&str> {
    let is_rule = |word: &&str| {
        word.contains('_')
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    text.split('"').filter(is_rule).collect()
}

#[test]
fn every_rule_that_a_difference_bears_is_in_the_guide() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(here.join("../../docs/registry.md")).unwrap();
    let files = ["avro/compare", "protobuf/compare", "json_schema/compare", "json_schema/object", "json_schema/array"];
    let mut count = 0;
    for file in files.iter().chain(&["json_schema/limits", "contract"]) {
        let text = std::fs::read_to_string(here.join(format!("src/{file}.rs"))).unwrap();
        for rule in rules(&text) {
            let is_level = tidewire_registry::Level::parse(rule).is_some();
            assert!(is_level || guide.contains(&format!("`{rule}`")), "docs/registry.md lacks {rule}");
            count += 1;
        }
    }
    assert!(count > 70, "{count}");
}
