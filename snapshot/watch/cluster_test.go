package watch

import (
	"bufio"
	"bytes"
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

var encoding = wire.EncodingOf(media.JSON)

// testForm has a bookmark of each kind.
func testForm(t testing.TB) Form {
	t.Helper()
	nodeName := wire.Field{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Indexed: true}
	envelope := samples.Envelope("PodList", "v1", nodeName)
	envelope.HasNamespaceField = true
	learn := func(annotations string) *wire.Bookmark {
		const line = `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"%s}}}`
		event, err := encoding.Event(fmt.Appendf(nil, line+"\n", annotations))
		expect.NoError(t, err)
		bookmark, err := wire.LearnBookmark(encoding, event)
		expect.NoError(t, err)
		return bookmark
	}
	return Form{
		Envelope: envelope, Plain: learn(""),
		InitialEnd: learn(`,"annotations":{"k8s.io/initial-events-end":"true"}`),
	}
}

// cluster writes objects, and publishes each write to a broadcaster.
type cluster struct {
	t     testing.TB
	rnd   *rand.Rand
	span  Span
	state index.Tree
	// log is every change, in order.
	log         []logged
	broadcaster *Broadcaster
	definition  definition
}

// definition answers the broadcaster whether it is still what it was, and counts the questions.
type definition struct {
	doubtful atomic.Bool
	asked    atomic.Int64
}

func (d *definition) isKnown() bool {
	d.asked.Add(1)
	return !d.doubtful.Load()
}

type logged struct {
	revision uint64
	index.Change
}

func newCluster(t testing.TB, seed uint64) *cluster {
	c := &cluster{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), span: Span{From: 10, To: 10}, state: index.NewTree(true)}
	c.span.Versions.Append(index.Version{Revision: 10, Tree: c.state.Clone()})
	c.broadcaster = NewBroadcaster(testForm(t), c.span, &Counts{}, &Pacer{})
	return c
}

// object returns an object with a label app and a node, at a revision.
func (c *cluster) object(namespace, name, app, node string, revision uint64) *index.Object {
	const text = `{"metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d","labels":{"app":%q}},` +
		`"spec":{"nodeName":%q}}`
	encoded := fmt.Appendf(nil, text, name, namespace, revision, app, node)
	o := index.NewObject(0, index.JoinKey(namespace, name), revision, encoded)
	o.Labels, o.Fields = samples.Labels("app", app), []string{node}
	return o
}

// write changes one object at random, or moves the revision without a change.
func (c *cluster) write() {
	revision := c.span.To + 1 + c.rnd.Uint64N(3)
	namespace, name := fmt.Sprint("n", c.rnd.IntN(3)), fmt.Sprint("p", c.rnd.IntN(4))
	o := c.object(namespace, name, fmt.Sprint(c.rnd.IntN(3)), fmt.Sprint("node", c.rnd.IntN(3)), revision)
	if c.rnd.IntN(25) == 0 { // a large one, before its revision and after it
		pad := func() string { return strings.Repeat("x", c.rnd.IntN(batchSize*5/4)) }
		o.Bytes = fmt.Appendf(nil, `{"a":%q,%s,"z":%q}`, pad(), o.Bytes[1:len(o.Bytes)-1], pad())
	}
	switch before, found := c.state.Get(o.Key); {
	case c.rnd.IntN(10) == 0:
		c.span.To = revision
		c.broadcaster.Publish(c.span)
	case found && c.rnd.IntN(3) == 0:
		bytes, err := wire.AtRevision(encoding, before.Bytes, revision)
		if err != nil {
			c.t.Fatal(err)
		}
		c.state.Remove(o.Key)
		c.change(revision, index.Change{
			Before: before, After: index.NewObject(0, o.Key, revision, bytes), Deleted: true,
		})
	default:
		c.state.Set(o)
		c.change(revision, index.Change{Before: before, After: o})
	}
}

func (c *cluster) change(revision uint64, change index.Change) {
	c.log = append(c.log, logged{revision, change})
	c.span.Versions.Append(index.Version{Revision: revision, Tree: c.state.Clone(), Change: change})
	c.span.To = revision
	c.broadcaster.Publish(c.span)
}

// trim forgets all but the last changes.
func (c *cluster) trim(keep int) {
	if n := c.span.Versions.Len(); n > keep {
		c.span.From = c.span.Versions.At(n - keep).Revision
		c.span.Versions.Forget(n - keep)
		c.broadcaster.Publish(c.span)
	}
}

// renew loads the newest state anew, some revisions later.
func (c *cluster) renew() {
	rev := c.span.To + 10
	c.span = Span{From: rev, To: rev}
	c.span.Versions.Append(index.Version{Revision: rev, Tree: c.state.Clone()})
	c.broadcaster.Renew(*c.broadcaster.Form(), c.span)
}

// queries are the kinds of watches.
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
		"a namespace's field":   {Fields: fields.OneTermEqualSelector("metadata.namespace", "n0")},
	}
}

// told is an event that is expected.
type told struct {
	revision uint64
	text     string
}

// expected is what a watch after a revision is told of the log from a place on, by another way of thinking: two sets
// are compared, of what it saw before each change and after.
func (c *cluster) expected(q index.Query, after uint64, from int) (events []told) {
	for _, l := range c.log[from:] {
		if l.revision <= after {
			continue
		}
		before, after := selects(q, l.Before), !l.Deleted && selects(q, l.After)
		tell := func(kind string, o *index.Object) {
			version := func(revision uint64) string { return fmt.Sprintf(`"resourceVersion":"%d"`, revision) }
			text := strings.Replace(string(o.Bytes), version(o.Revision), version(l.revision), 1)
			events = append(events, told{l.revision, kind + " " + text})
		}
		switch {
		case after && before:
			tell("MODIFIED", l.After)
		case after:
			tell("ADDED", l.After)
		case before:
			tell("DELETED", l.Before)
		}
	}
	return events
}

// selects reports whether an object, if there is one, is in a query's selection.
func selects(q index.Query, o *index.Object) bool {
	if o == nil {
		return false
	}
	namespace, name := index.SplitKey(o.Key)
	set := fields.Set{"metadata.name": name, "metadata.namespace": namespace, "spec.nodeName": o.Fields[0]}
	return (q.Scope.Namespace == "" || q.Scope.Namespace == namespace) && (q.Name == "" || q.Name == name) &&
		(q.Labels == nil || q.Labels.Matches(o.Labels)) && (q.Fields == nil || q.Fields.Matches(set))
}

// inBubble runs a test of a cluster in a bubble of time.
func inBubble(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newCluster(t, 1)) })
}

// bookmark is one at a revision, after so many events.
type bookmark struct {
	at     uint64
	events int
}

// client reads what a watcher tells. It is closed at the end of the test, if not before.
type client struct {
	*Watcher
	closing   sync.Once
	query     index.Query
	after     uint64
	events    []string
	bookmarks []bookmark
	end       Ending
}

func (c *cluster) watch(q index.Query, o Options) *client {
	c.t.Helper()
	o.Filter = index.NewFilter(c.broadcaster.Form().Envelope, q)
	if o.Timeout == 0 {
		o.Timeout = time.Hour
	}
	if o.Defined == nil {
		o.Defined = c.definition.isKnown
	}
	watcher := c.broadcaster.Watch(o)
	if watcher == nil {
		c.t.Fatal("no watcher")
	}
	w := &client{Watcher: watcher, query: q, after: o.After}
	c.t.Cleanup(func() { w.Close(EndGone) })
	return w
}

// Close is [Watcher.Close], once.
func (w *client) Close(why Ending) { w.closing.Do(func() { w.Watcher.Close(why) }) }

// readOn reads until the end.
func (w *client) readOn(ctx context.Context) {
	for w.end == "" {
		if !w.take(ctx) && w.end == "" {
			w.Wait(ctx)
		}
	}
}

// take reads what is there, and reports whether there was anything.
func (w *client) take(ctx context.Context) bool {
	var b Batch
	end := w.Take(ctx, &b)
	text, read := slices.Concat(slices.Collect(b.Parts)...), 0
	if len(text) != b.Size() {
		panic(fmt.Sprintf("%d bytes are said to be %d", len(text), b.Size()))
	}
	in := bufio.NewReader(bytes.NewReader(text))
	for {
		record, err := encoding.Record(in, nil)
		if errors.Is(err, io.EOF) {
			break
		}
		ev, err := encoding.Event(record)
		if err != nil {
			panic(err)
		}
		if read++; ev.Type == wire.Bookmarked {
			w.bookmarks = append(w.bookmarks, bookmark{ev.Meta.Revision, len(w.events)})
			continue
		}
		w.events = append(w.events, ev.Type+" "+string(ev.Object))
	}
	if read != b.Events {
		panic(fmt.Sprintf("%d events are said to be %d", read, b.Events))
	}
	w.end = end
	return read > 0
}

// add writes a new object in a namespace, and publishes it.
func (c *cluster) add(namespace string) {
	revision := c.span.To + 1
	c.change(revision, index.Change{After: c.object(namespace, "x", "1", "", revision)})
}

// watchNamespace returns n clients that watch a namespace.
func (c *cluster) watchNamespace(n int, namespace string, o Options) []*client {
	all := make([]*client, n)
	for i := range all {
		o.After = c.span.To
		all[i] = c.watch(index.Query{Scope: index.Scope{Namespace: namespace}}, o)
	}
	return all
}

// follow reads what a client is told until it ends, then sends when that was.
func (w *client) follow(t *testing.T, ended chan<- time.Time) {
	t.Helper()
	go func() {
		w.readOn(t.Context())
		w.Close(w.end)
		ended <- time.Now()
	}()
}
