//! What the schema of a CRD accepts, the Rust type reads: an object that the API server has stored is never the reason why
//! a controller cannot read a list.
//!
//! The generator goes by the schema alone, so a new field is covered by itself. It follows the API server where that accepts
//! more than the schema states: its check of `date-time` is not RFC 3339, and the type of a string that has a format
//! is not checked where the value is a list. Numbers are generated as the API server hands them out: it stores 1.0 as 1.
//! Rules in CEL are left out; they only ever accept less.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use api::v1beta1 as kinds;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::string::string_regex;
use proptest::test_runner::TestRunner;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

const CASES: u32 = 256;
const ITEMS_MAX: usize = 3;

fn schema_of(kind: &str) -> Value {
    let crd = kinds::crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let version = crd.spec.versions.iter().find(|version| version.storage).unwrap();
    let schema = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    serde_json::to_value(schema).unwrap()
}

/// A value that the schema accepts.
fn accepted(schema: &Value) -> BoxedStrategy<Value> {
    let value = accepted_unless_null(schema);
    if schema["nullable"] == true {
        prop_oneof![4 => value, 1 => Just(Value::Null)].boxed()
    } else {
        // The API server drops a null where the field is not nullable, and refuses one in a list.
        value
    }
}

fn accepted_unless_null(schema: &Value) -> BoxedStrategy<Value> {
    if schema["x-kubernetes-int-or-string"] == true {
        return prop_oneof![integer("int64"), matching(schema)].boxed();
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return anything().prop_filter("an object", Value::is_object).boxed();
    }
    match schema["type"].as_str().unwrap() {
        "object" => object(schema),
        "array" => {
            let most = schema["maxItems"].as_u64().map_or(ITEMS_MAX, |most| most as usize);
            let items = vec(accepted(&schema["items"]), 0..=most.min(ITEMS_MAX));
            items.prop_map(Value::from).boxed()
        }
        "string" => string(schema),
        "boolean" => any::<bool>().prop_map(Value::from).boxed(),
        "integer" => integer(schema["format"].as_str().unwrap_or("int64")),
        other => panic!("the generator knows no type {other}: {schema}"),
    }
}

fn object(schema: &Value) -> BoxedStrategy<Value> {
    if !schema["additionalProperties"].is_null() {
        let values = btree_map(text(), accepted(&schema["additionalProperties"]), 0..=ITEMS_MAX);
        return values.prop_map(Value::from_iter).boxed();
    }
    let no_fields = Map::new();
    let fields = schema["properties"].as_object().unwrap_or(&no_fields);
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
    let fields = fields.iter().map(|(name, field)| {
        let is_required = required.contains(&&json!(name));
        let value = if is_required {
            accepted(field).prop_map(Some).boxed()
        } else {
            proptest::option::of(accepted(field)).boxed()
        };
        let name = name.clone();
        value.prop_map(move |value| value.map(|value| (name.clone(), value)))
    });
    let fields: Vec<_> = fields.collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed()
}

fn integer(format: &str) -> BoxedStrategy<Value> {
    match format {
        "int32" => prop_oneof![any::<i32>(), select(vec![0, -1, i32::MIN, i32::MAX])]
            .prop_map(Value::from)
            .boxed(),
        "int64" => prop_oneof![any::<i64>(), select(vec![0, -1, i64::MIN, i64::MAX])]
            .prop_map(Value::from)
            .boxed(),
        other => panic!("the generator knows no integers of format {other}"),
    }
}

fn string(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return select(values.clone()).boxed();
    }
    match schema["format"].as_str() {
        Some("date-time") => {
            return prop_oneof![8 => time(), 1 => list_in_place_of_a_string()].boxed();
        }
        Some(other) => panic!("the generator knows no strings of format {other}"),
        None => {}
    }
    if schema["pattern"].is_string() {
        return matching(schema);
    }
    let least = schema["minLength"].as_u64().unwrap_or(0);
    let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    text()
        .prop_filter("of this length", move |text| {
            (least..=most).contains(&(text.chars().count() as u64))
        })
        .prop_map(Value::from)
        .boxed()
}

/// Of a pattern from start to end.
fn matching(schema: &Value) -> BoxedStrategy<Value> {
    let pattern = schema["pattern"].as_str().unwrap();
    let pattern = pattern.strip_prefix('^').unwrap().strip_suffix('$').unwrap();
    string_regex(&pattern.replace(r"\d", "[0-9]")).unwrap().prop_map(Value::from).boxed()
}

fn text() -> BoxedStrategy<String> {
    let known = ["", " ", "a", "null", "true", "5", "5Gi", "\0", "é\u{2028}", "a/b:c", "{}"];
    prop_oneof![
        select(known.map(str::to_owned).to_vec()),
        "[a-z0-9.-]{1,20}",
        "\\PC{0,20}",
        Just("x".repeat(300)),
    ]
    .boxed()
}

/// What `strfmt.IsDateTime` of kube-openapi accepts.
fn time() -> BoxedStrategy<Value> {
    let date = (0..=9999, 1..=12, 1..=28);
    let clock = (0..=23, 0..=59, 0..=59);
    let fraction = "|[.x,:é][0-9]{1,30}";
    let zone = "[zZ]|[+-][0-9]{2}:[0-9]{2}";
    // Only what stands between the first two letters T is looked at.
    let rest = select(vec!["", "t", "tgarbage", "T00:00:00Z", "t\u{0}"]);
    let separator = select(vec!["t", "T"]);
    (date, separator, clock, fraction, zone, rest)
        .prop_map(|((y, m, d), t, (h, min, s), fraction, zone, rest)| {
            json!(format!("{y:04}-{m:02}-{d:02}{t}{h:02}:{min:02}:{s:02}{fraction}{zone}{rest}"))
        })
        .boxed()
}

/// kube-openapi leaves the type of a value with a format unchecked where that is a list, as bytes could be.
fn list_in_place_of_a_string() -> BoxedStrategy<Value> {
    vec(anything(), 0..=ITEMS_MAX).prop_map(Value::from).boxed()
}

/// JSON of any form.
fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e15..1e15).prop_map(|number: f64| json!(number)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(Value::from_iter),
        ]
    })
    .boxed()
}

fn every_accepted_object_is_read<K>(kind: &str)
where
    K: DeserializeOwned + Serialize + std::fmt::Debug,
{
    let schema = schema_of(kind);
    let config =
        ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&accepted(&schema), |mut object| {
        object["apiVersion"] = "cdi.kubevirt.io/v1beta1".into();
        object["kind"] = kind.into();
        object["metadata"] = json!({ "name": "a", "uid": "u", "resourceVersion": "1" });
        let text = object.to_string();
        let read: Result<K, _> = serde_json::from_str(&text);
        prop_assert!(read.is_ok(), "{}: {text}", read.unwrap_err());
        // The controllers keep objects as JSON.
        let kept = serde_json::to_string(&read.unwrap()).unwrap();
        let again: Result<K, _> = serde_json::from_str(&kept);
        prop_assert!(again.is_ok(), "{}: {text}", again.unwrap_err());
        prop_assert_eq!(serde_json::to_string(&again.unwrap()).unwrap(), kept);
        Ok(())
    });
    if let Err(error) = outcome {
        let reason = error.to_string();
        panic!("{kind}: {}", reason.chars().take(4000).collect::<String>());
    }
}

macro_rules! kinds {
    ($($test:ident $kind:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            every_accepted_object_is_read::<kinds::$kind>($name);
        })*

        #[test]
        fn every_kind_is_covered() {
            let all: Vec<_> = kinds::crds().into_iter().map(|crd| crd.spec.names.kind).collect();
            let mut covered = vec![$($name),*];
            covered.sort_unstable();
            let mut all: Vec<_> = all.iter().map(String::as_str).collect();
            all.sort_unstable();
            assert_eq!(covered, all);
        }
    };
}

kinds! {
    cdi_reads_what_its_schema_accepts Cdi "CDI";
    cdi_config_reads_what_its_schema_accepts CdiConfig "CDIConfig";
    data_import_cron_reads_what_its_schema_accepts DataImportCron "DataImportCron";
    data_source_reads_what_its_schema_accepts DataSource "DataSource";
    data_volume_reads_what_its_schema_accepts DataVolume "DataVolume";
    object_transfer_reads_what_its_schema_accepts ObjectTransfer "ObjectTransfer";
    openstack_populator_reads_what_its_schema_accepts OpenstackVolumePopulator "OpenstackVolumePopulator";
    ovirt_populator_reads_what_its_schema_accepts OvirtVolumePopulator "OvirtVolumePopulator";
    storage_profile_reads_what_its_schema_accepts StorageProfile "StorageProfile";
    clone_source_reads_what_its_schema_accepts VolumeCloneSource "VolumeCloneSource";
    import_source_reads_what_its_schema_accepts VolumeImportSource "VolumeImportSource";
    upload_source_reads_what_its_schema_accepts VolumeUploadSource "VolumeUploadSource";
}
