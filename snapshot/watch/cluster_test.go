package watch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
)

// The tests of this package have a fakeCluster, which writes pods and publishes the changes to a [Broadcaster], and
// watchClients, which watch that broadcaster. No API server and no feed is needed.

var encoding = wire.EncodingOf(media.JSON)

const (
	// anySeed is the seed of a cluster that writes nothing at random.
	anySeed = 1
	// indexed is the argument of [index.NewTree] for a tree with an index by the first field, the pods' spec.nodeName.
	indexed = true
	// noNumber is the [index.Object].Number of all pods, since this package does not read the number.
	noNumber = 0
)

// testForm returns a form of pods that has a bookmark of each kind.
func testForm(t testing.TB) Form {
	t.Helper()
	nodeName := wire.Field{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Indexed: true}
	envelope := samples.Envelope("PodList", "v1", nodeName)
	envelope.HasNamespaceField = true
	learnBookmark := func(annotations string) *wire.Bookmark {
		const line = `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"%s}}}`
		event, err := wire.ParseEvent(encoding, fmt.Appendf(nil, line+"\n", annotations))
		expect.NoError(t, err)
		bookmark, err := wire.LearnBookmark(encoding, event)
		expect.NoError(t, err)
		return bookmark
	}
	return Form{
		Envelope:           envelope,
		PlainBookmark:      learnBookmark(""),
		InitialEndBookmark: learnBookmark(`,"annotations":{"k8s.io/initial-events-end":"true"}`),
	}
}

// fakeCluster writes pods in memory, and publishes the changes to a broadcaster.
type fakeCluster struct {
	t           testing.TB
	random      *rand.Rand
	span        Span       // the published history
	state       index.Tree // the pods at the newest revision
	log         []logged   // all changes, in order, also those that the history has forgotten
	broadcaster *Broadcaster
	definition  definition // what Options.IsDefined of the clients reports
}

// definition is the definition of pods, as [Options].IsDefined reports it. A doubt is a time in which IsDefined returns false,
// since the definition may have changed.
type definition struct {
	doubtful atomic.Bool  // There is a doubt.
	calls    atomic.Int64 // the number of calls of IsDefined
}

// isDefined is Options.IsDefined of all clients.
func (d *definition) isDefined() bool {
	d.calls.Add(1)
	return !d.doubtful.Load()
}

// logged is a change and its revision.
type logged struct {
	revision uint64
	index.Change
}

// newCluster returns an empty cluster at revision 10. What it writes at random depends on the seed.
func newCluster(t testing.TB, seed uint64) *fakeCluster {
	c := &fakeCluster{
		t:      t,
		random: rand.New(rand.NewPCG(seed, 0)),
		span:   Span{From: 10, To: 10},
		state:  index.NewTree(indexed),
	}
	c.span.Versions.Append(index.Version{Revision: 10, Tree: c.state.Clone()})
	c.broadcaster = NewBroadcaster(testForm(t), c.span, &Counts{}, &Pacer{})
	return c
}

// pod has the values by which the queries of these tests select pods.
type pod struct {
	namespace, name string
	app             string // the value of the label app
	node            string // spec.nodeName
}

// newPod returns a pod at a revision.
func newPod(p pod, revision uint64) *index.Object {
	const text = `{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d","labels":{"app":%q}},` +
		`"spec":{"nodeName":%q}}`
	encoded := fmt.Appendf(nil, text, p.name, p.namespace, revision, p.app, p.node)
	o := index.NewObject(noNumber, index.JoinKey(p.namespace, p.name), revision, encoded)
	o.Labels = samples.Labels("app", p.app)
	o.Fields = []string{p.node}
	return o
}

// randomPod returns a random pod at a revision. About one pod of 25 has padding. Most of these pods are so large that
// a batch does not copy all their bytes.
func (c *fakeCluster) randomPod(revision uint64) *index.Object {
	oneOf := func(n int, prefix string) string { return fmt.Sprint(prefix, c.random.IntN(n)) } // "n0", "n1" or "n2" for (3, "n")
	o := newPod(pod{namespace: oneOf(3, "n"), name: oneOf(4, "p"), app: oneOf(3, ""), node: oneOf(3, "node")}, revision)
	if isLarge := c.random.IntN(25) == 0; isLarge {
		padding := func() string { return strings.Repeat("x", c.random.IntN(batchSize*5/4)) }
		withoutBraces := o.Bytes[1 : len(o.Bytes)-1]
		// In a DELETED event, the resourceVersion is replaced. So there is padding both before and after the resourceVersion.
		o.Bytes = fmt.Appendf(nil, `{"a":%q,%s,"z":%q}`, padding(), withoutBraces, padding())
	}
	return o
}

// write creates, updates or deletes a random pod. Sometimes another resource is written instead, so that only the revision
// grows.
func (c *fakeCluster) write() {
	revision := c.span.To + 1 + c.random.Uint64N(3)
	o := c.randomPod(revision)
	old, exists := c.state.Get(o.Key)
	writesOther := c.random.IntN(10) == 0
	deletes := c.random.IntN(3) == 0
	switch {
	case writesOther:
		c.span.To = revision
		c.broadcaster.Publish(c.span)
	case exists && deletes:
		// As at kube-apiserver, a deletion has the pod's last state, at the revision of the deletion.
		deleted := index.NewObject(noNumber, o.Key, revision, wire.ReviseItem(encoding, old.Bytes, revision))
		c.state.Remove(o.Key)
		c.change(revision, index.Change{Before: old, After: deleted, Deleted: true})
	default:
		c.state.Set(o)
		c.change(revision, index.Change{Before: old, After: o})
	}
}

// add creates a pod in a namespace.
func (c *fakeCluster) add(namespace string) {
	revision := c.span.To + 1
	o := newPod(pod{namespace: namespace, name: fmt.Sprint("p", revision), app: "1"}, revision)
	c.state.Set(o)
	c.change(revision, index.Change{After: o})
}

// change logs and publishes a change. The caller has already made it in the cluster's state.
func (c *fakeCluster) change(revision uint64, change index.Change) {
	c.log = append(c.log, logged{revision, change})
	c.span.Versions.Append(index.Version{Revision: revision, Tree: c.state.Clone(), Change: change})
	c.span.To = revision
	c.broadcaster.Publish(c.span)
}

// trim makes the history forget old versions, so that at most this number of the newest ones is kept.
func (c *fakeCluster) trim(kept int) {
	if excess := c.span.Versions.Len() - kept; excess > 0 {
		c.span.From = c.span.Versions.At(excess).Revision
		c.span.Versions.Forget(excess)
		c.broadcaster.Publish(c.span)
	}
}

// renew replaces the history by the newest state alone, at a later revision, as a load does.
func (c *fakeCluster) renew() {
	const later = 10
	revision := c.span.To + later
	c.span = Span{From: revision, To: revision}
	c.span.Versions.Append(index.Version{Revision: revision, Tree: c.state.Clone()})
	c.broadcaster.Renew(*c.broadcaster.Form(), c.span)
}

// queries returns queries by their names. They have all kinds of selectors. A broadcaster keeps watchers with different queries
// in different buckets ([index.Bucket]): each kind of bucket has some of these queries.
func queries(t testing.TB) map[string]index.Query {
	t.Helper()
	selector := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		expect.NoError(t, err)
		return s
	}
	return map[string]index.Query{
		"all":         {},
		"a namespace": {Scope: index.Scope{Namespace: "n1"}},
		"an object": {
			Scope: index.Scope{Namespace: "n1"}, Name: "p2", Fields: fields.OneTermEqualSelector("metadata.name", "p2"),
		},
		"a name":                {Fields: fields.OneTermEqualSelector("metadata.name", "p2")},
		"a label":               {Labels: selector("app=1")},
		"a label and namespace": {Scope: index.Scope{Namespace: "n2"}, Labels: selector("app in (1)")},
		"not a label":           {Labels: selector("app!=1")},
		"a node":                {Fields: fields.OneTermEqualSelector("spec.nodeName", "node1")},
		"not a node":            {Fields: fields.OneTermNotEqualSelector("spec.nodeName", "node1")},
		"the namespace's field": {Fields: fields.OneTermEqualSelector("metadata.namespace", "n0")},
	}
}

// wantEvent is an event that a client must get. Its text is the type and the object.
type wantEvent struct {
	revision uint64
	text     string
}

// wantEvents returns the events that a watch after a revision must get for the changes in log. It looks at the object before
// and after each change, and does not use [index.Filter]:
//
//	selected before  selected after  event
//	no               yes             ADDED, with the object after the change
//	yes              yes             MODIFIED, with the object after the change
//	yes              no              DELETED, with the object before the change, at the revision of the change
func wantEvents(log []logged, q index.Query, after uint64) (events []wantEvent) {
	for _, l := range log {
		if l.revision <= after {
			continue
		}
		selectedBefore := selects(q, l.Before)
		selectedAfter := !l.Deleted && selects(q, l.After)
		var eventType string
		var o *index.Object
		switch {
		case selectedAfter && selectedBefore:
			eventType, o = wire.Modified, l.After
		case selectedAfter:
			eventType, o = wire.Added, l.After
		case selectedBefore:
			eventType, o = wire.Deleted, l.Before
		default:
			continue
		}
		resourceVersion := func(revision uint64) string { return fmt.Sprintf(`"resourceVersion":"%d"`, revision) }
		text := strings.Replace(string(o.Bytes), resourceVersion(o.Revision), resourceVersion(l.revision), 1)
		events = append(events, wantEvent{revision: l.revision, text: eventType + " " + text})
	}
	return events
}

// selects reports whether a query selects an object, which may be nil.
func selects(q index.Query, o *index.Object) bool {
	if o == nil {
		return false
	}
	namespace, name, _ := strings.Cut(o.Key, "/")
	set := fields.Set{"metadata.name": name, "metadata.namespace": namespace, "spec.nodeName": o.Fields[0]}
	inScope := (q.Scope.Namespace == "" || q.Scope.Namespace == namespace) && (q.Name == "" || q.Name == name)
	return inScope && (q.Labels == nil || q.Labels.Matches(o.Labels)) && (q.Fields == nil || q.Fields.Matches(set))
}

// inBubble runs a test with a new cluster in a bubble of fake time.
func inBubble(t *testing.T, test func(t *testing.T, c *fakeCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newCluster(t, anySeed)) })
}

// bookmark is a bookmark that a client has received.
type bookmark struct {
	revision uint64
	events   int // the number of events that the client received before it
}

// watchClient is a client with a watcher, and the events that it has received. The end of the test closes the watcher, if
// nobody has before.
type watchClient struct {
	*Watcher
	closing   sync.Once
	query     index.Query
	after     uint64     // the revision after which the watch begins
	events    []string   // the received events except for bookmarks, each as its type and its object
	bookmarks []bookmark // the received bookmarks
	end       Ending     // how the watch ended; "": it goes on
}

// watch begins a watch. By default it lasts an hour, and its IsDefined is the cluster's.
func (c *fakeCluster) watch(q index.Query, o Options) *watchClient {
	c.t.Helper()
	o.Filter = index.NewFilter(c.broadcaster.Form().Envelope, q)
	o.Timeout = cmp.Or(o.Timeout, time.Hour)
	if o.IsDefined == nil {
		o.IsDefined = c.definition.isDefined
	}
	watcher := c.broadcaster.Watch(o)
	if watcher == nil {
		c.t.Fatal("no watcher")
	}
	w := &watchClient{Watcher: watcher, query: q, after: o.After}
	c.t.Cleanup(func() { w.Close(EndGone) })
	return w
}

// watchNamespace begins a watch of a namespace, after the newest revision.
func (c *fakeCluster) watchNamespace(namespace string, o Options) *watchClient {
	o.After = c.span.To
	return c.watch(index.Query{Scope: index.Scope{Namespace: namespace}}, o)
}

// Close calls [Watcher.Close], but only the first time.
func (w *watchClient) Close(ending Ending) { w.closing.Do(func() { w.Watcher.Close(ending) }) }

// receive calls Take once. It reports whether Take returned any events or bookmarks. It panics if they are malformed, since it
// may run in a client's own goroutine, where Fatal must not be called.
func (w *watchClient) receive(ctx context.Context) bool {
	var b Batch
	w.end = w.Take(ctx, &b)
	text := slices.Concat(slices.Collect(b.Parts)...)
	if len(text) != b.Size() {
		panic(fmt.Sprintf("the batch has %d bytes, and its size is %d", len(text), b.Size()))
	}
	lines := bufio.NewReader(bytes.NewReader(text))
	for range b.Events {
		line, err := encoding.ReadRecord(lines, nil)
		if err != nil {
			panic(err)
		}
		ev, err := wire.ParseEvent(encoding, line)
		if err != nil {
			panic(err)
		}
		if ev.Type == wire.Bookmarked {
			w.bookmarks = append(w.bookmarks, bookmark{revision: ev.Meta.Revision, events: len(w.events)})
		} else {
			w.events = append(w.events, ev.Type+" "+string(ev.Object))
		}
	}
	if _, err := encoding.ReadRecord(lines, nil); !errors.Is(err, io.EOF) {
		panic(fmt.Sprintf("more than %d events in a batch: %v", b.Events, err))
	}
	return b.Events > 0
}

// receiveAll receives events until the watch ends.
func (w *watchClient) receiveAll(ctx context.Context) {
	for w.end == "" {
		if !w.receive(ctx) && w.end == "" {
			w.Wait(ctx)
		}
	}
}
