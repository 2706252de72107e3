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
	"github.com/listproxy/listproxy/test/expect"
)

// FuzzJSONList: if LearnEnvelope accepts a list, ParseList reads the items and the metadata that apimachinery reads, and Render
// writes the same bytes. With fewer items, Render writes valid JSON, too.
func FuzzJSONList(f *testing.F) {
	for _, list := range jsonLists {
		f.Add([]byte(list.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		envelope, err := LearnEnvelope(jsonEncoding{}, body, media.JSONType, "")
		if err != nil {
			return
		}
		got, err := jsonEncoding{}.ParseList(body)
		expect.NoError(t, err)
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
			return // apimachinery also reads the fields that ParseList skips, and may refuse their types
		}
		checkList(t, jsonEncoding{}, got, &want)
	})
}

// FuzzJSONStream: ReadRecord and ParseEvent read the events that client-go reads, up to the first error. An event is
// Reproducible if and only if its line is {"type":…,"object":…}, as API servers write it.
func FuzzJSONStream(f *testing.F) {
	const event = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"}}}` + "\n"
	for _, stream := range []string{
		// Whole, cut and blank lines, and one that is longer than the reader's buffer.
		event + event,
		event + event[:20],
		event + "\n" + event,
		strings.Replace(event, `"a"`, `"`+strings.Repeat("a", 9<<10)+`"`, 1),
		// Bookmarks and errors.
		event + `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}` + "\n",
		`{"type":"ERROR","object":{"kind":"Status","code":410}}` + "\n",
		// Lines that are not events.
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
		theirs := framer.NewJSONFramedReader(io.NopCloser(bytes.NewReader(stream))) // as client-go reads
		ours := bufio.NewReader(bytes.NewReader(stream))
		buffer := make([]byte, len(stream)+1)
		for {
			record, err := (jsonEncoding{}).ReadRecord(ours, nil)
			if err != nil {
				if !errors.Is(err, ErrEnded) {
					t.Errorf("at the end of the stream: %v, want %v", err, ErrEnded)
				}
				return
			}
			got, err := ParseEvent(jsonEncoding{}, record)
			if err != nil {
				return // client-go may accept an event that listproxy refuses.
			}
			n, err := theirs.Read(buffer)
			if err != nil {
				t.Fatalf("client-go cannot read %q: %v", record, err)
			}
			var want metav1.WatchEvent
			if err := utiljson.Unmarshal(buffer[:n], &want); err != nil {
				t.Fatalf("client-go cannot decode %q: %v", record, err)
			}
			if got.Type != want.Type || !bytes.Equal(got.Object, want.Object.Raw) {
				t.Errorf("got event %s %s, want %s %s as client-go", got.Type, got.Object, want.Type, want.Object.Raw)
			}
			if got.Meta.Revision == 0 {
				t.Errorf("an event without a revision is accepted: %s", record)
			}
			isReproducible := `{"type":"`+got.Type+`","object":`+string(got.Object)+"}\n" == string(record)
			if got.Reproducible != isReproducible {
				t.Errorf("%q: Reproducible is %t, want %t", record, got.Reproducible, isReproducible)
			}
		}
	})
}

// checkList compares a list with the list that apimachinery reads.
func checkList(t *testing.T, e Encoding, got List, want *metav1.PartialObjectMetadataList) {
	t.Helper()
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(want.ResourceVersion)
	if err != nil {
		t.Errorf("the list's revision: %v", err)
	}
	wantMeta := ListMeta{
		Revision: revision,
		Continue: want.Continue,
		Shards:   got.Meta.Shards, // not compared: apimachinery has it in ShardInfo
	}
	if want.RemainingItemCount != nil {
		wantMeta.Remaining = *want.RemainingItemCount
	}
	if diff := cmp.Diff(wantMeta, got.Meta); diff != "" {
		t.Errorf("list metadata, -apimachinery +got:\n%s", diff)
	}
	if len(got.Items) != len(want.Items) {
		t.Fatalf("got %d items, want %d as apimachinery", len(got.Items), len(want.Items))
	}
	for i, item := range got.Items {
		if m, err := e.ParseItem(item); err == nil {
			checkItem(t, m, &want.Items[i])
		}
	}
}

// checkItem compares the metadata of an item with the metadata that apimachinery reads.
func checkItem(t *testing.T, got ObjectMeta, want *metav1.PartialObjectMetadata) {
	t.Helper()
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(want.ResourceVersion)
	if err != nil || got.Revision != revision {
		t.Errorf("got revision %d, want %q as apimachinery (%v)", got.Revision, want.ResourceVersion, err)
	}
	if got.Name != want.Name || got.Namespace != want.Namespace {
		t.Errorf("got name %q in namespace %q, want %q in %q as apimachinery", got.Name, got.Namespace, want.Name, want.Namespace)
	}
	if gotLabels := maps.Collect(got.Labels.All); !maps.Equal(gotLabels, want.Labels) {
		t.Errorf("got labels %q, want %q as apimachinery", gotLabels, want.Labels)
	}
	for key, wantValue := range want.Labels {
		if value, found := got.Labels.Lookup(key); !found || value != wantValue {
			t.Errorf("label %q: got %q (found: %t), want %q as apimachinery", key, value, found, wantValue)
		}
	}
}
