package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sameLabels compares label sets as the product does.
var sameLabels = cmp.Comparer(func(a, b Labels) bool { return a == b })

func TestParseMeta(t *testing.T) {
	unexported := cmp.Options{cmp.AllowUnexported(ObjectMeta{}), sameLabels}
	for _, tt := range []struct {
		name, object string
		want         ObjectMeta
		bad          bool
	}{
		{
			name:   "a built-in",
			object: `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","resourceVersion":"12"},"spec":{"metadata":{"name":"no"}}}`,
			want:   ObjectMeta{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "a", Revision: 12},
		},
		{
			name:   "a bookmark",
			object: `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12","annotations":{"x":"}","k8s.io/initial-events-end":"true"}}}`,
			want:   ObjectMeta{APIVersion: "v1", Kind: "Pod", Revision: 12, EndsInitial: true},
		},
		{
			name:   "a status",
			object: `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}`,
			want:   ObjectMeta{APIVersion: "v1", Kind: "Status", code: 410},
		},
		{
			name:   "white space, escapes, other languages",
			object: "{ \"metadata\" :\t{\"na\\u006de\" : \"\\u0061\" , \"namespace\":\"ä\"} ,\"kind\":\"X\"}",
			want:   ObjectMeta{Kind: "X", Name: "a", Namespace: "ä"},
		},
		{
			name:   "labels",
			object: `{"metadata":{"labels":{"b":"2","a":"1","c":""}}}`,
			want:   ObjectMeta{Labels: MustLabels("a", "1", "b", "2", "c", "")},
		},
		{name: "null labels", object: `{"metadata":{"labels":null}}`},
		{name: "no labels", object: `{"metadata":{"labels":{}}}`},
		{name: "a label twice", object: `{"metadata":{"labels":{"a":"1","a":"2"}}}`, bad: true},
		{name: "a label that is no string", object: `{"metadata":{"labels":{"a":1}}}`, bad: true},
		{name: "null annotations", object: `{"metadata":{"annotations":null}}`},
		{name: "no object", object: `[]`, bad: true},
		{name: "a name that is no string", object: `{"metadata":{"name":1}}`, bad: true},
		{name: "a revision that is no number", object: `{"metadata":{"resourceVersion":"x"}}`, bad: true},
		{name: "a revision beyond int64", object: `{"metadata":{"resourceVersion":"18446744073709551615"}}`, bad: true},
		{name: "two names", object: `{"metadata":{"name":"a","name":"b"}}`, bad: true},
		{name: "two metadata", object: `{"metadata":{},"metadata":{}}`, bad: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := jsonMeta([]byte(tt.object))
			if (err != nil) != tt.bad {
				t.Fatalf("error %v, want one: %v", err, tt.bad)
			}
			if diff := cmp.Diff(tt.want, got, unexported); diff != "" && !tt.bad {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// FuzzMembers holds the scanner against encoding/json: for valid JSON the same members with the
// same values; for anything, no panic.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, ` { "a" : [1,{"b":"]}\""}] , "c":null}`, `{"a":"\\"}`, `{"a":"\u2028<>&","b":-1.5e3}`, `[1]`, `{"a":`, `{"a":"`, `{"a" 1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var got []string
		var values []json.RawMessage
		err := members(in, func(key string, value []byte) error {
			got = append(got, key)
			values = append(values, value)
			return nil
		})
		var want map[string]json.RawMessage
		if json.Unmarshal(in, &want) != nil || want == nil {
			return
		}
		if err != nil {
			t.Fatalf("valid JSON is refused: %v", err)
		}
		last := map[string]json.RawMessage{}
		for i, key := range got {
			last[key] = values[i]
		}
		if diff := cmp.Diff(want, last); diff != "" {
			t.Errorf("-encoding/json +members:\n%s", diff)
		}
	})
}

func FuzzElements(f *testing.F) {
	for _, s := range []string{`[]`, `[1]`, ` [ "a]" , {"b":[]} ] `, `[[],[[]]]`, `[`, `[1`, `[1 2]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var got []json.RawMessage
		err := elements(in, func(value []byte) error { got = append(got, value); return nil })
		var want []json.RawMessage
		if json.Unmarshal(in, &want) != nil || want == nil {
			return
		}
		if err != nil {
			t.Fatalf("valid JSON is refused: %v", err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d elements, want %d", len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("element %d is %s, want %s", i, got[i], want[i])
			}
		}
	})
}

// FuzzDecodeEvent feeds lines to the watch decoder: it never panics, and what it takes as an
// event is one.
func FuzzDecodeEvent(f *testing.F) {
	for _, s := range []string{
		`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","resourceVersion":"1"}}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}`,
		`{"type":"ERROR","object":{"kind":"Status","code":410}}`,
		`{"type":"ADDED","object":{"metadata":{}}}`, `{"type":"ADDED"}`, `{"object":{}}`, `{}`, `null`, `{"type":"X","object":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		ev, err := jsonEncoding{}.Event(line)
		if err != nil {
			return
		}
		if ev.Meta.Revision == 0 || !json.Valid(ev.Object) {
			t.Errorf("taken for an event: %q", line)
		}
		if !bytes.Contains(line, ev.Object) {
			t.Errorf("the object is not as received: %q", ev.Object)
		}
	})
}

func TestDecodeEventErrors(t *testing.T) {
	gone := &AnswerError{}
	_, err := jsonEncoding{}.Event([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}`))
	if !errors.As(err, &gone) || gone.Code != 410 || gone.Message != "too old" {
		t.Errorf("an ERROR event: %v", err)
	}
	for _, line := range []string{
		`{"type":"ADDED","object":{"metadata":{"name":"a"}}}`,                // no revision
		`{"type":"RENAMED","object":{"metadata":{"resourceVersion":"1"}}}`,   // unknown type
		`{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}`,      // cut
		`{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}}x`,    // more than one value
		`{"type":"ADDED","more":1,"object":{"metadata":{}}}`,                 // unknown member
		`{"type":"ADDED","type":"ADDED","object":{"metadata":{}}}`,           // twice
		"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"\x01\"}}}", // not JSON
		`[]`, `null`, ``, `{}`,
	} {
		var contradiction InconsistencyError
		if _, err := (jsonEncoding{}).Event([]byte(line)); !errors.As(err, &contradiction) {
			t.Errorf("%s: %v, want poison", line, err)
		}
	}
}
