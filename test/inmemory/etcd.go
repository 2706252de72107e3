package inmemory

import (
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
	labels := ""
	if o.Color != "" {
		labels = fmt.Sprintf(`"labels":{"color":%q},`, o.Color)
	}
	namespace := ""
	if o.Namespace != "" {
		namespace = fmt.Sprintf(`,"namespace":%q`, o.Namespace)
	}
	more := o.more
	if k.Path == Widgets.Path {
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
	changes  []Change
	states   map[string]map[string]Object // newest, by path and key
	written  chan struct{}                // closed at the next change
	values   int
	// pasts are the changes before each restore.
	pasts [][]Change
	// loads are the revisions of the states that listproxy itself was given.
	loads []int64
}

func newEtcd() *Etcd {
	return &Etcd{revision: 100, states: map[string]map[string]Object{}, written: make(chan struct{})}
}

// Revision is the newest one.
func (e *Etcd) Revision() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.revision
}

// Put writes an object, and Delete deletes one, if it is there.
func (e *Etcd) Put(k Kind, o Object) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.values++
	o.Value = e.values
	return e.changeLocked(k, o.key(), &o)
}

// Delete deletes an object, if it is there.
func (e *Etcd) Delete(k Kind, o Object) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changeLocked(k, o.key(), nil)
}

func (e *Etcd) changeLocked(k Kind, key string, to *Object) int64 {
	state := e.states[k.Path]
	if state == nil {
		state = map[string]Object{}
		e.states[k.Path] = state
	}
	ch := Change{At: time.Now(), path: k.Path, New: to}
	if old, is := state[key]; is {
		ch.Old = &old
	}
	if ch.Old == nil && to == nil {
		return e.revision
	}
	e.revision++
	ch.Revision = e.revision
	if to == nil {
		delete(state, key)
	} else {
		to.Revision = e.revision
		state[key] = *to
	}
	e.changes = append(e.changes, ch)
	close(e.written)
	e.written = make(chan struct{})
	return e.revision
}

// Restore takes etcd back to an older revision. No server may be running.
func (e *Etcd) Restore(revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pasts = append(e.pasts, slices.Clone(e.changes))
	keep, _ := slices.BinarySearchFunc(e.changes, revision+1, func(ch Change, rev int64) int { return int(ch.Revision - rev) })
	e.changes = slices.Clip(e.changes[:keep])
	e.revision = revision
	clear(e.states)
	for _, ch := range e.changes {
		e.applyLocked(ch)
	}
}

func (e *Etcd) applyLocked(ch Change) {
	state := e.states[ch.path]
	if state == nil {
		state = map[string]Object{}
		e.states[ch.path] = state
	}
	if ch.New != nil {
		state[ch.New.key()] = *ch.New
	} else {
		delete(state, ch.Old.key())
	}
}

// Pasts is how many there were, with that of now.
func (e *Etcd) Pasts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.pasts) + 1
}

func (e *Etcd) pastLocked(past int) []Change {
	if past < len(e.pasts) {
		return e.pasts[past]
	}
	return e.changes
}

// HeadAt is the newest revision that there was at a time, in the past of now.
func (e *Etcd) HeadAt(t time.Time) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	head := int64(0)
	for _, ch := range e.changes {
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

// List returns the objects at a revision of a past, in their order.
func (e *Etcd) List(past int, k Kind, revision int64, s Select) []Object {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := map[string]Object{}
	for _, ch := range e.pastLocked(past) {
		switch {
		case ch.path != k.Path || ch.Revision > revision:
		case ch.New != nil:
			state[ch.New.key()] = *ch.New
		default:
			delete(state, ch.Old.key())
		}
	}
	var found []Object
	for _, key := range slices.SortedFunc(maps.Keys(state), strings.Compare) {
		if o := state[key]; s.has(&o) {
			found = append(found, o)
		}
	}
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
	was, is := s.has(ch.Old), s.has(ch.New)
	switch {
	case is && was:
		return Event{"MODIFIED", *ch.New, ch.Revision}, true
	case is:
		return Event{"ADDED", *ch.New, ch.Revision}, true
	case was:
		return Event{"DELETED", *ch.Old, ch.Revision}, true
	}
	return Event{}, false
}

// Events returns what a watch from a revision on tells, up to another one.
func (e *Etcd) Events(past int, k Kind, after, upTo int64, s Select) (found []Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ch := range e.pastLocked(past) {
		if ch.path != k.Path || ch.Revision <= after || ch.Revision > upTo {
			continue
		}
		if ev, is := s.event(ch); is {
			found = append(found, ev)
		}
	}
	return found
}

// loaded notes that listproxy was given the state at a revision.
func (e *Etcd) loaded(revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loads = append(e.loads, revision)
}

// Unseen returns what a watch from a revision on tells, up to another one, without what listproxy could not
// see: objects that were made and deleted before it was given a new state.
func (e *Etcd) Unseen(past int, k Kind, after, upTo int64, s Select) []Event {
	events := e.Events(past, k, after, upTo, s)
	e.mu.Lock()
	load := int64(0)
	for _, at := range e.loads {
		if at <= upTo {
			load = max(load, at)
		}
	}
	e.mu.Unlock()
	last, made := map[string]Event{}, map[string]bool{}
	for _, ev := range events {
		key := ev.Object.key()
		if _, found := last[key]; !found {
			made[key] = ev.Type == "ADDED"
		}
		if ev.Revision <= load {
			last[key] = ev
		}
	}
	return slices.DeleteFunc(events, func(ev Event) bool {
		key := ev.Object.key()
		return ev.Revision <= load && made[key] && last[key].Type == "DELETED"
	})
}

// SameUpTo reports whether two pasts have the same changes of a kind up to a revision.
func (e *Etcd) SameUpTo(k Kind, a, b int, revision int64) bool {
	return slices.Equal(e.Events(a, k, 0, revision, Select{}), e.Events(b, k, 0, revision, Select{}))
}
