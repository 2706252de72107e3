package inmemory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is a kind of objects, by the path of its lists.
type Kind struct {
	Path, APIVersion, Kind string
	Namespaced             bool
}

// Widgets is the custom resource of the tests. Its definition, and the server that writes an object, are
// in the bytes of each widget.
var Widgets = Kind{Path: "/apis/example.com/v1/widgets", APIVersion: "example.com/v1", Kind: "Widget", Namespaced: true}

var (
	definitions = Kind{
		Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition",
	}
	services = Kind{Path: "/apis/apiregistration.k8s.io/v1/apiservices", APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"}
	leases   = Kind{Path: "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	metadata = Kind{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
)

// Object is one object, without what a server adds.
type Object struct {
	Namespace, Name string
	Color           string // the label "color"; empty: it has none
	Revision        int64
	Value           int    // of a widget: another one for each write
	more            string // of other kinds: what follows metadata
	moreMeta        string
}

func (o Object) key() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Form is what a server adds to a widget: the generation of the definition by which it writes, and what
// makes its bytes other ones than those of another release.
type Form struct {
	Definition int
	Release    string
}

func (k Kind) write(o Object, revision int64, f Form) string {
	labels, namespace, more := "", "", o.more
	if o.Color != "" {
		labels = fmt.Sprintf(`"labels":{"color":%q},`, o.Color)
	}
	if o.Namespace != "" {
		namespace = fmt.Sprintf(`,"namespace":%q`, o.Namespace)
	}
	switch k {
	case metadata:
		more = ""
	case Widgets:
		more = fmt.Sprintf(`,"spec":{"definition":%d,"release":%q,"value":%d}`, f.Definition, f.Release, o.Value)
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{%s%s"name":%q%s,"resourceVersion":"%d"}%s}`,
		k.APIVersion, k.Kind, o.moreMeta, labels, o.Name, namespace, revision, more)
}

// Change is one change of an object. Old is nil if it was created, New if it was deleted.
type Change struct {
	Revision int64
	At       time.Time
	path     string
	Old, New *Object
}

// Etcd is the storage. Its methods are safe for concurrent use.
type Etcd struct {
	mu       sync.Mutex
	revision int64
	// timelines are all changes: those before each restore, and those of now.
	timelines [][]Change
	written   chan struct{} // closed at the next change
	values    int
}

func newEtcd() *Etcd {
	return &Etcd{revision: 100, timelines: [][]Change{nil}, written: make(chan struct{})}
}

// Revision is the newest one.
func (e *Etcd) Revision() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.revision
}

// next is closed at the next change.
func (e *Etcd) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written
}

// Put writes an object.
func (e *Etcd) Put(k Kind, o Object) int64 { return e.change(k, o, false) }

// Delete deletes an object, if it is there.
func (e *Etcd) Delete(k Kind, o Object) int64 { return e.change(k, o, true) }

func (e *Etcd) change(k Kind, o Object, deletes bool) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.values++
	o.Value = e.values
	ch := Change{At: time.Now(), path: k.Path}
	timeline := &e.timelines[len(e.timelines)-1]
	for _, earlier := range slices.Backward(*timeline) {
		if earlier.path == k.Path && earlier.object().key() == o.key() {
			ch.Old = earlier.New
			break
		}
	}
	if deletes && ch.Old == nil {
		return e.revision
	}
	e.revision++
	ch.Revision, o.Revision = e.revision, e.revision
	if !deletes {
		ch.New = &o
	}
	*timeline = append(*timeline, ch)
	close(e.written)
	e.written = make(chan struct{})
	return e.revision
}

// object is the one that has changed, as it is or was.
func (ch Change) object() *Object { return cmp.Or(ch.New, ch.Old) }

// Restore takes etcd back to an older revision. No server may be running.
func (e *Etcd) Restore(revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := e.timelines[len(e.timelines)-1]
	keep, _ := slices.BinarySearchFunc(last, revision+1, func(ch Change, rev int64) int { return cmp.Compare(ch.Revision, rev) })
	e.timelines = append(e.timelines, slices.Clone(last[:keep]))
	e.revision = revision
}

// Timelines is how many there were, with that of now.
func (e *Etcd) Timelines() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.timelines)
}

// changes are those of a timeline, which nobody writes to.
func (e *Etcd) changes(timeline int) []Change {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clip(e.timelines[timeline])
}

// Head is the newest revision of a timeline.
func (e *Etcd) Head(timeline int) (head int64) {
	if all := e.changes(timeline); len(all) > 0 {
		head = all[len(all)-1].Revision
	}
	return head
}

// HeadAt is the newest revision that there was at a time, in the timeline of now.
func (e *Etcd) HeadAt(t time.Time) (head int64) {
	for _, ch := range e.changes(e.Timelines() - 1) {
		if ch.At.After(t) {
			break
		}
		head = ch.Revision
	}
	return head
}

// Select says which objects a list or a watch is about.
type Select struct {
	Namespace, Name, Color string // empty: all
}

func (s Select) has(o *Object) bool {
	return o != nil && (s.Namespace == "" || o.Namespace == s.Namespace) && (s.Name == "" || o.Name == s.Name) && (s.Color == "" || o.Color == s.Color)
}

// List returns the objects at a revision of a timeline, in their order.
func (e *Etcd) List(timeline int, k Kind, revision int64, s Select) (found []Object) {
	state := map[string]*Object{}
	for _, ch := range e.changes(timeline) {
		if ch.path == k.Path && ch.Revision <= revision {
			state[ch.object().key()] = ch.New
		}
	}
	for _, o := range state {
		if s.has(o) {
			found = append(found, *o)
		}
	}
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.key(), b.key()) })
	return found
}

// Event is what a watch tells of a change: of which object, as what, and at which revision.
type Event struct {
	Type     string
	Object   Object
	Revision int64
}

// Write returns the line of a watch that tells of the event, as a server writes it.
func (ev Event) Write(k Kind, f Form) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", ev.Type, k.write(ev.Object, ev.Revision, f))
}

func (s Select) event(ch Change) (Event, bool) {
	before, after := s.has(ch.Old), s.has(ch.New)
	switch {
	case after && before:
		return Event{"MODIFIED", *ch.New, ch.Revision}, true
	case after:
		return Event{"ADDED", *ch.New, ch.Revision}, true
	case before:
		return Event{"DELETED", *ch.Old, ch.Revision}, true
	}
	return Event{}, false
}

// Events returns what a watch from a revision on tells, up to another one.
func (e *Etcd) Events(timeline int, k Kind, after, upTo int64, s Select) (found []Event) {
	for _, ch := range e.changes(timeline) {
		if ch.path != k.Path || ch.Revision <= after || ch.Revision > upTo {
			continue
		}
		if ev, is := s.event(ch); is {
			found = append(found, ev)
		}
	}
	return found
}

// SameUpTo reports whether two timelines have the same changes of a kind up to a revision.
func (e *Etcd) SameUpTo(k Kind, a, b int, revision int64) bool {
	return slices.Equal(e.Events(a, k, 0, revision, Select{}), e.Events(b, k, 0, revision, Select{}))
}

// Leads reports whether a client that has the objects of one timeline at a revision has those of another one in the end,
// by name and revision, if it learns of all changes after that revision in the other one.
func (e *Etcd) Leads(k Kind, from, to int, revision int64, s Select) bool {
	has := revisionsOf(e.List(from, k, revision, s))
	for _, ch := range e.changes(to) {
		switch key := ch.object().key(); {
		case ch.path != k.Path || ch.Revision <= revision:
		case s.has(ch.New):
			has[key] = ch.Revision
		default:
			delete(has, key)
		}
	}
	return maps.Equal(has, revisionsOf(e.List(to, k, e.Head(to), s)))
}

// revisionsOf returns the revisions of objects by their keys.
func revisionsOf(objects []Object) map[string]int64 {
	revisions := map[string]int64{}
	for _, o := range objects {
		revisions[o.key()] = o.Revision
	}
	return revisions
}
