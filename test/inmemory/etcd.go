package inmemory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is a kind of objects. API servers list its objects at Path.
type Kind struct {
	Path, APIVersion, Kind string
	Namespaced             bool
}

// Widgets is the custom resource of the tests. Its objects say how they were written: their bytes contain the [Form] of the
// server.
var Widgets = Kind{Path: "/apis/example.com/v1/widgets", APIVersion: "example.com/v1", Kind: "Widget", Namespaced: true}

// The kinds that each control plane serves, too.
var (
	Definitions = Kind{
		Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition",
	}
	APIServices = Kind{Path: "/apis/apiregistration.k8s.io/v1/apiservices", APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"}
	Leases      = Kind{Path: "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	metadata    = Kind{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
)

// Object is an object as etcd has it, without the fields that servers add.
type Object struct {
	Namespace, Name string
	Color           string // the value of the label "color"; "": no label
	Revision        int64  // of the write of the object
	Value           int    // in the spec of a widget; each write sets another value
	More            string // JSON after the metadata, such as `,"spec":{}`; widgets have their spec instead
	MoreMeta        string // JSON at the beginning of the metadata, such as `"generation":2,`
}

// key returns the key by which lists are ordered.
func (o Object) key() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Form is how a server writes a widget. The same widget has other bytes once the server has learned of a changed
// CustomResourceDefinition, or has been replaced by one of another release.
type Form struct {
	Definition int    // the generation of the definition of widgets that the server knows
	Release    string // the server's version
}

// write returns an object in JSON, at a revision, as a server with a form writes it.
func (k Kind) write(o Object, revision int64, f Form) string {
	labels, namespace := "", ""
	more := o.More
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
		k.APIVersion, k.Kind, o.MoreMeta, labels, o.Name, namespace, revision, more)
}

// Change is a write of an object. Old is nil for a creation, and New for a deletion.
type Change struct {
	Revision int64
	At       time.Time
	path     string
	Old, New *Object
}

// Etcd is the storage. Its methods are safe for concurrent use.
type Etcd struct {
	keepsAll atomic.Bool // whether older states are never compacted

	mu       sync.Mutex // guards the following fields
	revision int64
	// timelines has all changes of each timeline, in order. A timeline is a history of etcd: each restore from a backup begins
	// another one. The last is the current one.
	timelines [][]Change
	written   chan struct{} // closed at the next change
	values    int           // the number of writes so far, for Object.Value
}

// newEtcd returns an etcd without objects.
func newEtcd() *Etcd {
	return &Etcd{revision: 100, timelines: [][]Change{nil}, written: make(chan struct{})}
}

// KeepAll makes etcd keep all states, as with --etcd-compaction-interval=0.
func (e *Etcd) KeepAll() { e.keepsAll.Store(true) }

// Revision returns the current revision.
func (e *Etcd) Revision() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.revision
}

// next returns a channel that is closed at the next change.
func (e *Etcd) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written
}

// Put creates or changes an object, and returns the new revision.
func (e *Etcd) Put(k Kind, o Object) int64 { return e.change(k, o.key(), &o) }

// Delete deletes an object, if it exists, and returns the revision.
func (e *Etcd) Delete(k Kind, o Object) int64 { return e.change(k, o.key(), nil) }

// change adds the change of an object to the current timeline and returns the revision. after is nil for a deletion.
func (e *Etcd) change(k Kind, key string, after *Object) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.values++
	timeline := &e.timelines[len(e.timelines)-1]
	var before *Object
	for _, earlier := range slices.Backward(*timeline) {
		if earlier.path == k.Path && earlier.object().key() == key {
			before = earlier.New
			break
		}
	}
	if before == nil && after == nil {
		return e.revision
	}
	e.revision++
	if after != nil {
		after.Value = e.values
		after.Revision = e.revision
	}
	*timeline = append(*timeline, Change{Revision: e.revision, At: time.Now(), path: k.Path, Old: before, New: after})
	close(e.written)
	e.written = make(chan struct{})
	return e.revision
}

// object returns the object after the change, or the deleted object.
func (ch Change) object() *Object { return cmp.Or(ch.New, ch.Old) }

// Restore restores etcd to an older revision and begins a new timeline, which lacks all later changes. No server may be up.
func (e *Etcd) Restore(revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	timeline := slices.Clone(e.timelines[len(e.timelines)-1])
	isLost := func(ch Change) bool { return ch.Revision > revision }
	e.timelines = append(e.timelines, slices.DeleteFunc(timeline, isLost))
	e.revision = revision
}

// Timelines returns the number of timelines, the current one included.
func (e *Etcd) Timelines() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.timelines)
}

// changes returns the changes of a timeline, which the caller must not modify.
func (e *Etcd) changes(timeline int) []Change {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clip(e.timelines[timeline])
}

// Head returns the newest revision of a timeline, or 0 if it has no changes.
func (e *Etcd) Head(timeline int) (head int64) {
	if all := e.changes(timeline); len(all) > 0 {
		head = all[len(all)-1].Revision
	}
	return head
}

// HeadAt returns the revision that was the newest of the current timeline at a time, or 0 if it had no changes then.
func (e *Etcd) HeadAt(t time.Time) (head int64) {
	for _, ch := range e.changes(e.Timelines() - 1) {
		if ch.At.After(t) {
			break
		}
		head = ch.Revision
	}
	return head
}

// Select selects the objects of a list or a watch. An empty field selects all.
type Select struct {
	Namespace, Name, Color string
}

// selects reports whether s selects an object. It never selects nil.
func (s Select) selects(o *Object) bool {
	fits := func(want, got string) bool { return want == "" || got == want }
	return o != nil && fits(s.Namespace, o.Namespace) && fits(s.Name, o.Name) && fits(s.Color, o.Color)
}

// List returns the selected objects at a revision of a timeline, in the order of keys.
func (e *Etcd) List(timeline int, k Kind, revision int64, s Select) (found []Object) {
	state := map[string]*Object{} // nil: deleted
	for _, ch := range e.changes(timeline) {
		if ch.path == k.Path && ch.Revision <= revision {
			state[ch.object().key()] = ch.New
		}
	}
	for _, o := range state {
		if s.selects(o) {
			found = append(found, *o)
		}
	}
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.key(), b.key()) })
	return found
}

// Event is an event of a watch.
type Event struct {
	Type     string
	Object   Object
	Revision int64
}

// Write returns the event's line in a watch, as a server of a form writes it.
func (ev Event) Write(k Kind, f Form) string {
	return EventLine(ev.Type, k.write(ev.Object, ev.Revision, f))
}

// EventLine returns the line of an event with an object in JSON.
func EventLine(eventType, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", eventType, object)
}

// event returns the event of a change for a watch of the selected objects. An object that no longer is among them is DELETED,
// even if it still exists. ok is false if the watch gets no event.
func (s Select) event(ch Change) (_ Event, ok bool) {
	before, after := s.selects(ch.Old), s.selects(ch.New)
	switch {
	case after && before:
		return Event{Type: "MODIFIED", Object: *ch.New, Revision: ch.Revision}, true
	case after:
		return Event{Type: "ADDED", Object: *ch.New, Revision: ch.Revision}, true
	case before:
		return Event{Type: "DELETED", Object: *ch.Old, Revision: ch.Revision}, true
	}
	return Event{}, false
}

// Events returns the events of a watch of the selected objects for all changes with after < revision ≤ upTo.
func (e *Etcd) Events(timeline int, k Kind, after, upTo int64, s Select) (found []Event) {
	for _, ch := range e.changes(timeline) {
		if ch.path != k.Path || ch.Revision <= after || ch.Revision > upTo {
			continue
		}
		if ev, ok := s.event(ch); ok {
			found = append(found, ev)
		}
	}
	return found
}

// SameUpTo reports whether two timelines have the same changes of a kind up to a revision.
func (e *Etcd) SameUpTo(k Kind, a, b int, revision int64) bool {
	return slices.Equal(e.Events(a, k, 0, revision, Select{}), e.Events(b, k, 0, revision, Select{}))
}

// Converges reports whether a client that does not notice a restore of etcd still ends with the right objects. The client has
// the state of the timeline from at a revision. Then it gets all changes of the timeline to after that revision. Its objects
// are right if they have the keys and revisions of the objects of the timeline to.
func (e *Etcd) Converges(k Kind, from, to int, revision int64, s Select) bool {
	revisions := revisionsOf(e.List(from, k, revision, s))
	for _, ch := range e.changes(to) {
		key := ch.object().key()
		switch {
		case ch.path != k.Path || ch.Revision <= revision: // the client does not get it
		case s.selects(ch.New):
			revisions[key] = ch.Revision
		default:
			delete(revisions, key)
		}
	}
	return maps.Equal(revisions, revisionsOf(e.List(to, k, e.Head(to), s)))
}

// revisionsOf returns the revisions of objects by their keys.
func revisionsOf(objects []Object) map[string]int64 {
	revisions := map[string]int64{}
	for _, o := range objects {
		revisions[o.key()] = o.Revision
	}
	return revisions
}
