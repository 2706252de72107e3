package wire

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// jsonObjects are accepted, or not.
var jsonObjects = map[bool][]string{
	true: {
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","resourceVersion":"12"},"spec":{"metadata":{"name":"no"}}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12","annotations":{"x":"}","k8s.io/initial-events-end":"true"}}}`,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}`,
		"{ \"metadata\" :\t{\"na\\u006de\" : \"\\u0061\" , \"namespace\":\"ä\"} ,\"kind\":\"X\"}",
		`{"metadata":{"labels":{"b":"2","a":"1","c":""}}}`, `{"metadata":{"labels":null}}`, `{"metadata":{"labels":{"a":null}}}`, `{"metadata":{"labels":{}}}`,
		`{"metadata":{"annotations":null,"name":"\u0061\ud83d\ude00"}}`, `{"metadata":{"Name":"a","NAME":"b"},"Metadata":{"name":"c"},"code":410}`,
		` { "metadata" : { "labels" : null , "resourceVersion" : "" } , "items" : [ {} , "]" ] } `,
	},
	false: {
		`[]`, `null`, `{"metadata":null}`, `{"metadata":{"name":1}}`, `{"metadata":{"labels":{"a":1}}}`,
		`{"metadata":{"resourceVersion":"x"}}`, `{"metadata":{"resourceVersion":"18446744073709551615"}}`,
		`{"metadata":{"name":"a","name":"b"}}`, `{"metadata":{},"metadata":{}}`, `{"metadata":{"labels":{"a":"1","a":"2"}}}`, // one name or the other
		`{"metadata":{"labels":{"a\u0000b":"1"}}}`, `{"metadata":{"labels":{"a":"1\u0000"}}}`,
	},
}

// FuzzJSONObject: of an object that is accepted the API server's own clients read the same.
func FuzzJSONObject(f *testing.F) {
	for want, objects := range jsonObjects {
		for _, object := range objects {
			if _, err := (jsonEncoding{}).Item([]byte(object)); (err == nil) != want {
				f.Errorf("%s is accepted: %t", object, !want)
			}
			f.Add([]byte(object))
		}
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		if !json.Valid(object) {
			return // lists and events are looked at before
		}
		got, err := jsonEncoding{}.Item(object)
		var want metav1.PartialObjectMetadata
		if err != nil || utiljson.Unmarshal(object, &want) != nil { // some other field is of another type
			return
		}
		if got.Kind != want.Kind || got.APIVersion != want.APIVersion {
			t.Errorf("%s of %s, apimachinery reads %s of %s", got.Kind, got.APIVersion, want.Kind, want.APIVersion)
		}
		sameMeta(t, got, &want)
	})
}
