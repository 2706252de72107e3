package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/framer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/storage"

	"github.com/listproxy/listproxy/policy/media"
)

// checkMeta compares the metadata of an object with the metadata that apimachinery reads.
func checkMeta(t *testing.T, got ObjectMeta, want *metav1.PartialObjectMetadata) {
	t.Helper()
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(want.ResourceVersion)
	if err != nil || got.Revision != revision {
		t.Errorf("revision %d; apimachinery: %q, %v", got.Revision, want.ResourceVersion, err)
	}
	if got.Name != want.Name || got.Namespace != want.Namespace {
		t.Errorf("%q in %q; apimachinery: %q in %q", got.Name, got.Namespace, want.Name, want.Namespace)
	}
	if endsInitial := want.Annotations[metav1.InitialEventsAnnotationKey] == "true"; got.EndsInitial != endsInitial {
		t.Errorf("the end of the initial events: %t; apimachinery: %t", got.EndsInitial, endsInitial)
	}
	if gotLabels := maps.Collect(got.Labels.All); !maps.Equal(gotLabels, want.Labels) {
		t.Errorf("labels %q; apimachinery: %q", gotLabels, want.Labels)
	}
	for key, value := range want.Labels {
		if got, found := got.Labels.Lookup(key); !found || got != value {
			t.Errorf("label %q: %q, %t; apimachinery: %q", key, got, found, value)
		}
	}
}

// FuzzJSONList: if LearnEnvelope accepts a list, the list has the items and the metadata that apimachinery reads, and
// Render writes the same bytes. A list with fewer items is valid JSON, too.
func FuzzJSONList(f *testing.F) {
	for name, tt := range jsonLists {
		_, _, err := LearnEnvelope(jsonEncoding{}, []byte(tt.body), media.JSONType, "")
		if !errors.Is(err, tt.wantErr) {
			f.Errorf("%s: %v, want %v", name, err, tt.wantErr)
		}
		f.Add([]byte(tt.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		envelope, got, err := LearnEnvelope(jsonEncoding{}, body, media.JSONType, "")
		if err != nil {
			return
		}
		if again := envelope.Render(got.Meta, got.Items); !bytes.Equal(again, body) {
			t.Errorf("Render writes %s for the list\n%s", again, body)
		}
		for n := range got.Items {
			if shorter := envelope.Render(got.Meta, got.Items[:n]); !json.Valid(shorter) {
				t.Errorf("with %d items, Render writes invalid JSON: %s", n, shorter)
			}
		}
		var want metav1.PartialObjectMetadataList
		if err := utiljson.Unmarshal(body, &want); err != nil {
			return // a field that is skipped here may have another type
		}
		checkListAgainst(t, jsonEncoding{}, got, &want)
	})
}

// checkListAgainst compares a list with the list that apimachinery reads.
func checkListAgainst(t *testing.T, e Encoding, got List, want *metav1.PartialObjectMetadataList) {
	t.Helper()
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(want.ResourceVersion)
	if err != nil {
		t.Errorf("the list's revision: %v", err)
	}
	wantMeta := ListMeta{
		Revision:     revision,
		Continue:     want.Continue,
		HasRemaining: want.RemainingItemCount != nil,
		Shards:       got.Meta.Shards, // apimachinery's type has other fields for them
	}
	if wantMeta.HasRemaining {
		wantMeta.Remaining = *want.RemainingItemCount
	}
	if diff := cmp.Diff(wantMeta, got.Meta); diff != "" {
		t.Errorf("list metadata, -apimachinery +got:\n%s", diff)
	}
	if len(got.Items) != len(want.Items) {
		t.Fatalf("%d items; apimachinery: %d", len(got.Items), len(want.Items))
	}
	for i, item := range got.Items {
		if m, err := e.Item(item); err == nil {
			checkMeta(t, m, &want.Items[i])
		}
	}
}

// FuzzJSONStream: Record and Event read the events that client-go reads, up to the first error. An event is Reproducible
// exactly if an API server writes it with the same bytes.
func FuzzJSONStream(f *testing.F) {
	const event = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"}}}` + "\n"
	longName := strings.Repeat("a", 9<<10) // longer than the reader's buffer
	for _, stream := range []string{
		event + event,
		event + `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}` + "\n",
		event + event[:20],
		event + "\n" + event,
		strings.Replace(event, `"a"`, `"`+longName+`"`, 1),
		`{"type":"ERROR","object":{"kind":"Status","code":410}}` + "\n",
		"{}{}\n",
		"null\n",
		`{"type":"ADDED","object":{"metadata":{}}}` + "\n",
		`{"type":"ADDED"}` + "\n",
		`{"object":{}}` + "\n",
		`{"type":"X","object":{}}` + "\n",
		// Events that API servers write with other bytes.
		` {"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}}` + "\n",
		`{"type": "ADDED","object":{"metadata":{"resourceVersion":"1"}}}` + "\n",
		`{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}} }` + "\n",
		`{"object":{"metadata":{"resourceVersion":"1"}},"type":"ADDED"}` + "\n",
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
					t.Errorf("at the end of the stream: %v, want %v", err, ErrEnded)
				}
				return
			}
			got, err := jsonEncoding{}.Event(record)
			if err != nil {
				return
			}
			n, err := theirs.Read(buffer)
			if err != nil {
				t.Fatalf("client-go cannot read %q: %v", record, err)
			}
			var want metav1.WatchEvent
			if err := utiljson.Unmarshal(buffer[:n], &want); err != nil {
				t.Fatalf("client-go cannot decode %q: %v", record, err)
			}
			if got.Type != want.Type || !bytes.Equal(got.Object, want.Object.Raw) || got.Meta.Revision == 0 {
				t.Errorf("%s %s at revision %d; client-go: %s %s", got.Type, got.Object, got.Meta.Revision, want.Type, want.Object.Raw)
			}
			isReproducible := `{"type":"`+got.Type+`","object":`+string(got.Object)+"}\n" == string(record)
			if got.Reproducible != isReproducible {
				t.Errorf("%q: Reproducible is %t, want %t", record, got.Reproducible, isReproducible)
			}
		}
	})
}
