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

// track is what is true of a selection of objects: its state at a revision, and each event after
// it, as kube-apiserver tells both: the one by an exact list, the others by a watch from there.
type track struct {
	from   uint64
	state  map[string][]byte // objects as in events
	stream *stream
}

// openTrack asks for a track of what a watch selects. It is nil if that revision is too old for the
// API server.
func openTrack(ctx context.Context, direct *side, w watchRequest, from uint64) (*track, error) {
	list := w.list(from)
	a, err := direct.ask(ctx, list)
	switch {
	case err != nil:
		return nil, err
	case a.Code == http.StatusGone:
		return nil, nil
	case a.Code != http.StatusOK:
		return nil, fmt.Errorf("%s: %s", list, a)
	}
	t := &track{from: from}
	if t.state, err = stateOf(a.Body, w); err != nil {
		return nil, fmt.Errorf("%s: %w", list, err)
	}
	if t.stream, err = openStream(ctx, direct, w.after(from)); err != nil {
		return nil, err
	}
	if t.stream.Code != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", w.after(from), t.stream)
	}
	return t, nil
}

// events are those that have come.
func (t *track) events() []oracle.Event {
	events, _, _ := t.stream.said()
	return slices.DeleteFunc(events, func(e oracle.Event) bool { return e.Type == watch.Bookmark })
}

// lost reports whether the API server has ended the track, so that it says no more what is true.
func (t *track) lost() bool {
	events, ended, _ := t.stream.said()
	return ended || len(events) > 0 && events[0].Type == watch.Error
}

func (t *track) close() { t.stream.close() }

// list is the question for the state at a revision, by the admin.
func (w watchRequest) list(revision uint64) question {
	q := exactly(w.Resource, w.Namespace, w.admin, revision)
	q.Header.Set("Accept", w.told().accept(false))
	for _, name := range []string{"labelSelector", "fieldSelector", "shardSelector"} {
		if w.Query.Has(name) {
			q.Query[name] = w.Query[name]
		}
	}
	return q
}

// after is the question for what came after a revision, by the admin.
func (w watchRequest) after(revision uint64) question {
	q := w.list(revision)
	q.Query.Del("resourceVersionMatch")
	q.Query.Set("watch", "true")
	q.Header.Set("Accept", w.told().accept(true))
	return q
}

// stateOf reads a list as the objects of events.
func stateOf(body []byte, w watchRequest) (map[string][]byte, error) {
	kind := runtime.TypeMeta{APIVersion: w.Resource.GroupVersion().String(), Kind: w.Resource.Kind}
	if w.told().metadata() {
		kind = runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	}
	if w.told().protobuf() {
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
		if o.Kind == "" { // a custom resource says it in a list, too
			object = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,%s`, kind.Kind, kind.APIVersion, item[1:])
		}
		state[keyOf(&o.ObjectMeta)] = object
	}
	return state, nil
}

func stateOfProtobuf(body []byte, kind runtime.TypeMeta) (map[string][]byte, error) {
	var list runtime.Unknown
	if err := list.Unmarshal(bytes.TrimPrefix(body, magic)); err != nil {
		return nil, err
	}
	state := map[string][]byte{}
	for rest := list.Raw; len(rest) > 0; {
		number, wire, n := protowire.ConsumeTag(rest)
		if n < 0 || wire != protowire.BytesType {
			return nil, fmt.Errorf("not a list: %q", rest)
		}
		content, m := protowire.ConsumeBytes(rest[n:])
		if m < 0 {
			return nil, fmt.Errorf("not a list: %q", rest)
		}
		rest = rest[n+m:]
		if number != 2 {
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
