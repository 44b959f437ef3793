//! Comparison of JSON objects with the schemas in `docs/schema/`.

use std::fs;

use serde_json::{Value, json};

use crate::fixture::repository;

/// Where an object differs from a schema.
fn errors(name: &str, object: &Value) -> Vec<String> {
    let path = repository("docs/schema").join(format!("{name}-1.schema.json"));
    let schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    schema.iter_errors(object).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

/// Asserts that an object matches its schema, and that it does not without any one of its fields or
/// with an additional field.
pub(crate) fn assert_matches_schema(name: &str, object: &Value) {
    assert_eq!(object["schema"], format!("{name}/1"));
    assert_eq!(errors(name, object), Vec::<String>::new(), "{object:#}");
    for field in object.as_object().unwrap().keys() {
        let mut broken = object.clone();
        broken.as_object_mut().unwrap().remove(field);
        assert_ne!(errors(name, &broken), Vec::<String>::new(), "{name} without {field}");
    }
    assert_refuses(name, object, |object| object["another"] = json!(1));
}

/// Asserts that an object does not match its schema after a change.
pub(crate) fn assert_refuses(name: &str, object: &Value, change: impl FnOnce(&mut Value)) {
    let mut broken = object.clone();
    change(&mut broken);
    assert_ne!(errors(name, &broken), Vec::<String>::new(), "{broken:#}");
}
