package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/framer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/storage"

	"github.com/listproxy/listproxy/policy/media"
)

// sameMeta holds what a feed reads of an object against what apimachinery reads of it.
func sameMeta(t *testing.T, got ObjectMeta, want *metav1.PartialObjectMetadata) {
	t.Helper()
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(want.ResourceVersion)
	if err != nil || got.Revision != revision {
		t.Errorf("revision %d, apimachinery reads %q, %v", got.Revision, want.ResourceVersion, err)
	}
	if got.Name != want.Name || got.Namespace != want.Namespace {
		t.Errorf("%q in %q, apimachinery reads %q in %q", got.Name, got.Namespace, want.Name, want.Namespace)
	}
	if ends := want.Annotations[metav1.InitialEventsAnnotationKey] == "true"; got.EndsInitial != ends {
		t.Errorf("the end of the initial events: %t, apimachinery reads %t", got.EndsInitial, ends)
	}
	for key, value := range want.Labels {
		if had, found := got.Labels.Lookup(key); !found || had != value {
			t.Errorf("label %q is %q, %t, apimachinery reads %q", key, had, found, value)
		}
	}
	if n := len(want.Labels); n == 0 && got.Labels != (Labels{}) {
		t.Error("there are labels, apimachinery reads none")
	}
}

// FuzzJSONList: a list that is accepted says the same to the API server's own clients, and is
// written again in the same bytes; without one of its items it is still a list.
func FuzzJSONList(f *testing.F) {
	for _, list := range jsonLists {
		if _, _, err := LearnEnvelope(jsonEncoding{}, []byte(list.body), media.JSONType, ""); list.bad != errors.Is(err, ErrForm) {
			f.Errorf("%s: %v", list.name, err)
		}
		f.Add([]byte(list.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		envelope, got, err := LearnEnvelope(jsonEncoding{}, body, media.JSONType, "")
		if err != nil {
			return
		}
		if again := envelope.Render(got.Meta, got.Items); !bytes.Equal(again, body) {
			t.Errorf("%s is written again as\n%s", body, again)
		}
		for i := range got.Items {
			if shorter := envelope.Render(got.Meta, got.Items[:i]); !json.Valid(shorter) {
				t.Errorf("with %d items it is no JSON: %s", i, shorter)
			}
		}
		var want metav1.PartialObjectMetadataList
		if err := utiljson.Unmarshal(body, &want); err != nil {
			return
		}
		sameList(t, jsonEncoding{}, got, &want)
	})
}

// sameList holds a list against what apimachinery reads of it.
func sameList(t *testing.T, e Encoding, got List, want *metav1.PartialObjectMetadataList) {
	t.Helper()
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(want.ResourceVersion)
	if err != nil {
		t.Errorf("the list's revision: %v", err)
	}
	meta := ListMeta{Revision: revision, Continue: want.Continue, HasRemaining: want.RemainingItemCount != nil, Shards: got.Meta.Shards}
	if meta.HasRemaining {
		meta.Remaining = *want.RemainingItemCount
	}
	if diff := cmp.Diff(meta, got.Meta); diff != "" {
		t.Errorf("-apimachinery +list:\n%s", diff)
	}
	if len(got.Items) != len(want.Items) {
		t.Fatalf("%d items, apimachinery reads %d", len(got.Items), len(want.Items))
	}
	for i, item := range got.Items {
		if m, err := e.Item(item); err == nil {
			sameMeta(t, m, &want.Items[i])
		}
	}
}

// FuzzJSONStream: the events of a watch are those that client-go would read from it, as long as
// all goes well; and those that an API server frames in other bytes are told apart.
func FuzzJSONStream(f *testing.F) {
	const event = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"}}}` + "\n"
	for _, stream := range []string{
		event + event, event + `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}` + "\n", event + event[:20],
		event + "\n" + event, strings.Replace(event, `"a"`, `"`+strings.Repeat("a", 9<<10)+`"`, 1), // longer than what is read at once
		`{"type":"ERROR","object":{"kind":"Status","code":410}}` + "\n", "{}{}\n",
		`{"type":"ADDED","object":{"metadata":{}}}` + "\n", `{"type":"ADDED"}` + "\n", `{"object":{}}` + "\n", "null\n", `{"type":"X","object":{}}` + "\n",
		` {"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}}` + "\n", `{"type": "ADDED","object":{"metadata":{"resourceVersion":"1"}}}` + "\n",
		`{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}} }` + "\n", `{"object":{"metadata":{"resourceVersion":"1"}},"type":"ADDED"}` + "\n",
	} {
		f.Add([]byte(stream))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		theirs := framer.NewJSONFramedReader(io.NopCloser(bytes.NewReader(stream)))
		ours := bufio.NewReader(bytes.NewReader(stream))
		buffer := make([]byte, len(stream)+1)
		var record []byte
		for {
			var err error
			if record, err = (jsonEncoding{}).Record(ours, record[:0]); err != nil {
				if !errors.Is(err, ErrEnded) {
					t.Errorf("a short stream: %v", err)
				}
				return
			}
			got, err := jsonEncoding{}.Event(record)
			if err != nil {
				return
			}
			n, err := theirs.Read(buffer)
			if err != nil {
				t.Fatalf("client-go does not read %q: %v", record, err)
			}
			var want metav1.WatchEvent
			if err := utiljson.Unmarshal(buffer[:n], &want); err != nil {
				t.Fatalf("client-go does not decode %q: %v", record, err)
			}
			if got.Type != want.Type || !bytes.Equal(got.Object, want.Object.Raw) || got.Meta.Revision == 0 {
				t.Errorf("%s %s, client-go reads %s %s", got.Type, got.Object, want.Type, want.Object.Raw)
			}
			if again := `{"type":"` + got.Type + `","object":` + string(got.Object) + "}\n"; got.Reproducible != (again == string(record)) {
				t.Errorf("%q is framed as ever: %t", record, got.Reproducible)
			}
		}
	})
}
