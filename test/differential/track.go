package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/oracle"
)

// track is the truth about the objects that a watch selects. kube-apiserver's list at an exact revision gives their state, and
// its watch from there gives each event after that revision.
type track struct {
	from   uint64            // the revision of the list, after which the watch begins
	state  map[string][]byte // the objects of the list by key, with the bytes that they have in events
	stream *stream           // the watch
}

// openTrack opens a track, from a revision on, of the objects that the watch w selects. If kube-apiserver no longer has the
// revision, or does not have it yet, openTrack returns no track and no error. The caller closes the track.
func openTrack(ctx context.Context, direct *side, w watchRequest, from uint64) (*track, error) {
	list := w.exactList(from)
	answer, err := direct.ask(ctx, list)
	switch {
	case err != nil:
		return nil, err
	case answer.Code == http.StatusGone, answer.NotThereYet():
		return nil, nil
	case answer.Code != http.StatusOK:
		return nil, fmt.Errorf("%s: %s", list, answer)
	}
	state, err := stateOf(answer.Body, w)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list, err)
	}
	events, err := openStream(ctx, direct, w.watchFrom(from))
	if err != nil {
		return nil, err
	}
	if events.Code != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", w.watchFrom(from), events)
	}
	return &track{from: from, state: state, stream: events}, nil
}

// events returns the events so far, without bookmarks.
func (t *track) events() []oracle.Event {
	return slices.DeleteFunc(t.stream.soFar().events, func(e oracle.Event) bool { return e.Type == watch.Bookmark })
}

// hasEnded reports whether kube-apiserver has ended the watch of the track, or refused it. Then the track lacks later events.
func (t *track) hasEnded() bool {
	now := t.stream.soFar()
	return now.hasEnded || len(now.events) > 0 && now.events[0].Type == watch.Error
}

func (t *track) close() { t.stream.close() }

// exactList returns the admin's list of what the watch selects, at exactly a revision.
func (w watchRequest) exactList(revision uint64) question {
	q := exactly(w.Resource, w.Namespace, w.admin, revision)
	q.Header.Set("Accept", w.eventsIn().simplestAccept())
	for _, name := range []string{"labelSelector", "fieldSelector", "shardSelector"} {
		if w.Query.Has(name) {
			q.Query[name] = w.Query[name]
		}
	}
	return q
}

// watchFrom returns the admin's watch of what the watch selects, after a revision.
func (w watchRequest) watchFrom(revision uint64) question {
	q := w.exactList(revision)
	q.Query.Del("resourceVersionMatch")
	q.Query.Set("watch", "true")
	q.Header.Set("Accept", watchAccept(q.Header.Get("Accept")))
	return q
}

// stateOf returns the objects of a list by key, with the bytes that they have in events of the watch w. In events each object
// has its kind and apiVersion.
func stateOf(body []byte, w watchRequest) (map[string][]byte, error) {
	kind := runtime.TypeMeta{APIVersion: w.Resource.GroupVersion().String(), Kind: w.Resource.Kind}
	if w.eventsIn().isMetadata() {
		kind = runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	}
	if w.eventsIn().isProtobuf() {
		return stateOfProtobuf(body, kind)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	state := map[string][]byte{}
	for _, item := range list.Items {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(item, &o); err != nil {
			return nil, err
		}
		object := []byte(item)
		if o.Kind == "" { // in a list, only custom resources have their kind
			object = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,%s`, kind.Kind, kind.APIVersion, item[1:])
		}
		state[keyOf(&o.ObjectMeta)] = object
	}
	return state, nil
}

// stateOfProtobuf is stateOf for a list in protobuf. kind is that of the objects.
func stateOfProtobuf(body []byte, kind runtime.TypeMeta) (map[string][]byte, error) {
	const itemsField = 2 // of every list
	var list runtime.Unknown
	if err := list.Unmarshal(bytes.TrimPrefix(body, magic)); err != nil {
		return nil, err
	}
	state := map[string][]byte{}
	for rest := list.Raw; len(rest) > 0; {
		field, kindOfValue, tagLength := protowire.ConsumeTag(rest)
		if tagLength < 0 || kindOfValue != protowire.BytesType {
			return nil, fmt.Errorf("not a list: %q", rest)
		}
		content, contentLength := protowire.ConsumeBytes(rest[tagLength:])
		if contentLength < 0 {
			return nil, fmt.Errorf("not a list: %q", rest)
		}
		rest = rest[tagLength+contentLength:]
		if field != itemsField {
			continue
		}
		var o metav1.PartialObjectMetadata
		if err := o.Unmarshal(content); err != nil {
			return nil, err
		}
		object, err := (&runtime.Unknown{TypeMeta: kind, Raw: content}).Marshal()
		if err != nil {
			return nil, err
		}
		state[keyOf(&o.ObjectMeta)] = slices.Concat(magic, object)
	}
	return state, nil
}
