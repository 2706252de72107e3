package wire

import (
	"encoding/json"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// jsonEncoding.ParseItem accepts validObjects, and refuses invalidObjects.
var (
	validObjects = []string{
		// Metadata, and what looks like it in other places.
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","resourceVersion":"12"},"spec":{"metadata":{"name":"no"}}}`,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}`,
		// Spaces, escapes, and brackets in strings.
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12","annotations":{"x":"}","k8s.io/initial-events-end":"true"}}}`,
		"{ \"metadata\" :\t{\"na\\u006de\" : \"\\u0061\" , \"namespace\":\"ä\"} ,\"kind\":\"X\"}",
		`{"metadata":{"annotations":null,"name":"\u0061\ud83d\ude00"}}`,
		` { "metadata" : { "labels" : null , "resourceVersion" : "" } , "items" : [ {} , "]" ] } `,
		// Labels, and each spelling of none.
		`{"metadata":{"labels":{"b":"2","a":"1","c":""}}}`,
		`{"metadata":{"labels":null}}`,
		`{"metadata":{"labels":{"a":null}}}`,
		`{"metadata":{"labels":{}}}`,
		// Members that differ from those of metadata by case.
		`{"metadata":{"Name":"a","NAME":"b"},"Metadata":{"name":"c"},"code":410}`,
	}
	invalidObjects = []string{
		// No metadata, or members of wrong types.
		`[]`,
		`null`,
		`{"metadata":null}`,
		`{"metadata":{"name":1}}`,
		`{"metadata":{"labels":{"a":1}}}`,
		// A zero byte, which separates labels in memory.
		`{"metadata":{"labels":{"a\u0000b":"1"}}}`,
		`{"metadata":{"labels":{"a":"1\u0000"}}}`,
		// No revision, or one above the greatest.
		`{"metadata":{"resourceVersion":"x"}}`,
		`{"metadata":{"resourceVersion":"18446744073709551615"}}`,
		// Repeated members: some clients read the first value, others the last.
		`{"metadata":{"name":"a","name":"b"}}`,
		`{"metadata":{},"metadata":{}}`,
		`{"metadata":{"labels":{"a":"1","a":"2"}}}`,
	}
)

// TestJSONItem: ParseItem of jsonEncoding accepts objects. It refuses what has no metadata, has members of wrong types, or
// could be read by clients in two ways.
func TestJSONItem(t *testing.T) {
	for _, object := range validObjects {
		if _, err := (jsonEncoding{}).ParseItem([]byte(object)); err != nil {
			t.Errorf("%s: got error %v, want none", object, err)
		}
	}
	for _, object := range invalidObjects {
		if m, err := (jsonEncoding{}).ParseItem([]byte(object)); err == nil {
			t.Errorf("%s: got %+v, want an error", object, m)
		}
	}
}

// FuzzJSONObject: if ParseItem accepts an object, it reads the metadata that apimachinery reads.
func FuzzJSONObject(f *testing.F) {
	for _, object := range slices.Concat(validObjects, invalidObjects) {
		f.Add([]byte(object))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		if !json.Valid(object) {
			return // ParseItem gets parts of lists and events, which were validated
		}
		got, err := jsonEncoding{}.ParseItem(object)
		var want metav1.PartialObjectMetadata
		// ParseItem skips fields that apimachinery refuses if their type is wrong.
		if err != nil || utiljson.Unmarshal(object, &want) != nil {
			return
		}
		if got.Kind != want.Kind || got.APIVersion != want.APIVersion {
			t.Errorf("%s: read as %s of %s, want %s of %s as apimachinery", object, got.Kind, got.APIVersion, want.Kind, want.APIVersion)
		}
		checkItem(t, got, &want)
	})
}
