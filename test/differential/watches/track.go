package watches

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/oracle"
)

// track is what is true of a selection of objects: its state at a revision, and each event after
// it, as kube-apiserver tells both: the one by an exact list, the others by a watch from there.
type track struct {
	from   uint64
	state  map[string][]byte // objects as in events
	stream *stream
}

// openTrack asks for a track of what a form selects. It is nil if that revision is too old for the
// API server.
func openTrack(ctx context.Context, direct *differential.Side, f form, from uint64, patience time.Duration) (*track, error) {
	list := f.list(from)
	a, err := direct.Ask(ctx, list)
	if err != nil {
		return nil, err
	}
	switch a.Status {
	case http.StatusOK:
	case http.StatusGone:
		return nil, nil
	default:
		return nil, fmt.Errorf("%s: %d %.300s", list, a.Status, a.Body)
	}
	t := &track{from: from}
	if t.state, err = stateOf(a.Body, f); err != nil {
		return nil, fmt.Errorf("%s: %w", list, err)
	}
	if t.stream, err = open(ctx, direct, f.after(from), patience); err != nil {
		return nil, err
	}
	if t.stream.status != http.StatusOK {
		return nil, fmt.Errorf("%s: %d %.300s", f.after(from), t.stream.status, t.stream.body)
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

// list is the question for the state at a revision.
func (f form) list(revision uint64) differential.Question {
	q := f.selection()
	q.Query.Set("resourceVersion", strconv.FormatUint(revision, 10))
	q.Query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	q.Header.Set("Accept", map[differential.Representation]string{
		differential.JSON:             jsonType,
		differential.Protobuf:         protobufType,
		differential.MetadataJSON:     jsonType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		differential.MetadataProtobuf: protobufType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	}[f.told()])
	return q
}

// after is the question for what came after a revision.
func (f form) after(revision uint64) differential.Question {
	q := f.selection()
	q.Query.Set("watch", "true")
	q.Query.Set("resourceVersion", strconv.FormatUint(revision, 10))
	q.Header.Set("Accept", accepts[f.told()][0])
	return q
}

// selection is the question for the same objects, by the admin.
func (f form) selection() differential.Question {
	q := differential.Question{
		Resource: f.Resource, Namespace: f.Namespace, User: f.admin, Query: url.Values{}, Header: http.Header{},
	}
	for _, name := range []string{"labelSelector", "fieldSelector"} {
		if f.Query.Has(name) {
			q.Query[name] = f.Query[name]
		}
	}
	return q
}

// stateOf reads a list as the objects of events.
func stateOf(body []byte, f form) (map[string][]byte, error) {
	apiVersion, kind := f.Resource.GroupVersion().String(), f.Resource.Kind
	if metadata(f.told()) {
		apiVersion, kind = "meta.k8s.io/v1", "PartialObjectMetadata"
	}
	if f.told() == differential.Protobuf || f.told() == differential.MetadataProtobuf {
		return stateOfProtobuf(body, apiVersion, kind)
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
			object = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,%s`, kind, apiVersion, item[1:])
		}
		state[keyOf(&o.ObjectMeta)] = object
	}
	return state, nil
}

func stateOfProtobuf(body []byte, apiVersion, kind string) (map[string][]byte, error) {
	list, err := unpack(body)
	if err != nil {
		return nil, err
	}
	typeMeta := append(field(1, []byte(apiVersion)), field(2, []byte(kind))...)
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
		object := slices.Concat(magic, field(1, typeMeta), field(2, content), field(3, nil), field(4, nil))
		state[keyOf(&o.ObjectMeta)] = object
	}
	return state, nil
}
