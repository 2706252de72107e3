package wire

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// validObjects are accepted by jsonEncoding.Item, and invalidObjects are refused.
var (
	validObjects = []string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","resourceVersion":"12"},"spec":{"metadata":{"name":"no"}}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12","annotations":{"x":"}","k8s.io/initial-events-end":"true"}}}`,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}`,
		"{ \"metadata\" :\t{\"na\\u006de\" : \"\\u0061\" , \"namespace\":\"ä\"} ,\"kind\":\"X\"}",
		`{"metadata":{"labels":{"b":"2","a":"1","c":""}}}`,
		`{"metadata":{"labels":null}}`,
		`{"metadata":{"labels":{"a":null}}}`,
		`{"metadata":{"labels":{}}}`,
		`{"metadata":{"annotations":null,"name":"\u0061\ud83d\ude00"}}`,
		`{"metadata":{"Name":"a","NAME":"b"},"Metadata":{"name":"c"},"code":410}`,
		` { "metadata" : { "labels" : null , "resourceVersion" : "" } , "items" : [ {} , "]" ] } `,
	}
	invalidObjects = []string{
		`[]`,
		`null`,
		`{"metadata":null}`,
		`{"metadata":{"name":1}}`,
		`{"metadata":{"labels":{"a":1}}}`,
		`{"metadata":{"labels":{"a\u0000b":"1"}}}`,
		`{"metadata":{"labels":{"a":"1\u0000"}}}`,
		`{"metadata":{"resourceVersion":"x"}}`,
		`{"metadata":{"resourceVersion":"18446744073709551615"}}`,
		// Clients could read one value or the other.
		`{"metadata":{"name":"a","name":"b"}}`,
		`{"metadata":{},"metadata":{}}`,
		`{"metadata":{"labels":{"a":"1","a":"2"}}}`,
	}
)

// FuzzJSONObject: if Item accepts an object, it reads the metadata that apimachinery reads.
func FuzzJSONObject(f *testing.F) {
	for _, object := range validObjects {
		if _, err := (jsonEncoding{}).Item([]byte(object)); err != nil {
			f.Errorf("%s: %v", object, err)
		}
		f.Add([]byte(object))
	}
	for _, object := range invalidObjects {
		if m, err := (jsonEncoding{}).Item([]byte(object)); err == nil {
			f.Errorf("%s: %+v, want an error", object, m)
		}
		f.Add([]byte(object))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		if !json.Valid(object) {
			return // Item gets parts of lists and events, which were validated
		}
		got, err := jsonEncoding{}.Item(object)
		var want metav1.PartialObjectMetadata
		if err != nil || utiljson.Unmarshal(object, &want) != nil { // a field that Item skips may have another type
			return
		}
		if got.Kind != want.Kind || got.APIVersion != want.APIVersion {
			t.Errorf("%s of %s; apimachinery: %s of %s", got.Kind, got.APIVersion, want.Kind, want.APIVersion)
		}
		checkMeta(t, got, &want)
	})
}
