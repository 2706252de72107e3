package snapshot

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/test/inmemory"
)

// plane is a control plane in memory with one API server, and the hop to it: a transport that sees each request. Tests make the
// hop do what no API server does (interceptors_test.go).
type plane struct {
	*inmemory.Hop

	mu   sync.Mutex      // guards seen
	seen []*http.Request // all requests so far
}

// release is the version of the API server.
const release = "v1.36.0"

// serverForm is the form in which the API server writes widgets.
var serverForm = inmemory.Form{Definition: 1, Release: release}

const (
	// emptyAt is the revision of a plane without widgets: inmemory.Etcd begins at 100, and four other objects are written. Each
	// widget adds one.
	emptyAt = 104
	// loadedAt is the revision of a plane with the widgets a and b, at which a feed loads them. Their own revisions are lower.
	loadedAt = emptyAt + 2
)

// newPlane starts an API server with these widgets, all in the namespace n. It must run in a synctest bubble.
func newPlane(t *testing.T, names ...string) *plane {
	t.Helper()
	p := &plane{Hop: inmemory.NewHop(t, inmemory.New(t))}
	p.AddServer(release).Start(release)
	for _, name := range names {
		p.write(name)
	}
	p.writeElsewhere()
	return p
}

// RoundTrip implements http.RoundTripper.
func (p *plane) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.seen = append(p.seen, r)
	p.mu.Unlock()
	return p.Hop.RoundTrip(r)
}

// requests returns all requests so far that are wanted.
func (p *plane) requests(isWanted func(*http.Request) bool) (found []*http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.seen {
		if isWanted(r) {
			found = append(found, r)
		}
	}
	return found
}

// count returns the number of requests of some kinds so far.
func (p *plane) count(kinds ...requestKind) int {
	return len(p.requests(func(r *http.Request) bool { return slices.Contains(kinds, kindOf(r)) }))
}

// widget returns a widget of the namespace n.
func widget(name string) inmemory.Object { return inmemory.Object{Namespace: "n", Name: name} }

// write creates or changes a widget, and returns the revision.
func (p *plane) write(name string) int64 { return p.Put(inmemory.Widgets, widget(name)) }

// writeElsewhere writes another resource, so that only the revision grows.
func (p *plane) writeElsewhere() {
	p.Put(inmemory.Leases, inmemory.Object{Namespace: "kube-system", Name: "other"})
}

// serve makes the API server list and watch a collection, which is empty, and returns the kind of its objects.
func (p *plane) serve(key CollectionKey) inmemory.Kind {
	version := key.Group + "/" + key.Version
	kind := inmemory.Kind{Path: "/apis/" + version + "/" + key.Resource, APIVersion: version, Kind: "Thing", Namespaced: true}
	p.Serve(kind)
	return kind
}

// list returns a page of the widgets at a revision as the API server writes it.
func (p *plane) list(revision int64, l inmemory.List) string {
	return p.WriteList(0, inmemory.Widgets, revision, l, func(int) inmemory.Form { return serverForm })
}

// sampleLimit is the limit of the list from which a feed learns the form of lists (source.sampleSize).
const sampleLimit = "20"

// requestKind is a kind of requests that a feed makes.
type requestKind string

const (
	kindStreamingList      requestKind = "streaming list"
	kindEmptyStreamingList requestKind = "streaming list of a name that cannot exist" // shows how streaming lists end
	kindWatchOfOne         requestKind = "watch of one object"                        // shows how events hold objects
	kindShortWatch         requestKind = "short watch"                                // shows changes up to its first bookmark
	kindWatch              requestKind = "watch"                                      // the feed's stream
	kindProbe              requestKind = "probe"                                      // asks for the upstream's newest revision
	kindList               requestKind = "list"                                       // any other list
)

// kindOf returns the kind of a request. The order of the cases matters: the special kinds come before the usual ones.
func kindOf(r *http.Request) requestKind {
	isShort := r.URL.Query().Get("timeoutSeconds") == strconv.Itoa(int(source.ShortWatch/time.Second))
	switch q := r.URL.Query(); {
	case q.Has("sendInitialEvents") && q.Has("fieldSelector"):
		return kindEmptyStreamingList
	case q.Has("sendInitialEvents"):
		return kindStreamingList
	case q.Has("watch") && q.Has("fieldSelector"):
		return kindWatchOfOne
	case q.Has("watch") && isShort:
		return kindShortWatch
	case q.Has("watch"):
		return kindWatch
	case q.Has("fieldSelector") && q.Get("resourceVersionMatch") == "":
		return kindProbe
	}
	return kindList
}
