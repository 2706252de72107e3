package differential

import (
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/oracle"
)

// start says which resourceVersion a watch names.
type start string

// The starts.
const (
	fromUnset   start = "unset"   // none, or an empty one
	fromZero    start = "0"       // 0
	fromZeros   start = "00"      // 00, which means 0, but without the defaults that "0" gives other parameters
	fromWithin  start = "within"  // the revision of a recent write
	fromFuture  start = "future"  // up to 60 revisions above the newest: it is reached soon
	fromDistant start = "distant" // a million above the newest: it is not reached
	fromOld     start = "old"     // 1
)

// choice is the value of a boolean parameter, which may be absent.
type choice string

const (
	absent choice = "-"
	yes    choice = "true"
	no     choice = "false"
)

// watchRequest is a request for a watch.
type watchRequest struct {
	question
	admin     cluster.User
	watchList bool // the API server has streaming lists

	start     start
	initial   choice // sendInitialEvents
	bookmarks bool   // allowWatchBookmarks
	// seconds is a short timeoutSeconds, after which the watch may end while its events are compared; 0 if there is none.
	seconds int
	// unusual means that only a test writes such a request, for example with watch=yes. Its events must be the same as those of
	// the usual request, but need not come from memory. (question.Odd means that the watch is refused, or ends at once.)
	unusual bool
}

// eventsIn returns the representation of the objects in the events. That is the one that the watch asks for, unless it is
// protobuf and the resource has none: then events are in JSON. Custom resources (cluster.Group) have protobuf for their
// metadata only.
func (w watchRequest) eventsIn() representation {
	switch {
	case w.Representation == protobuf && (w.Resource.Group == cluster.Group || w.Resource.JSONOnly):
		return plainJSON
	case w.Representation == metadataProtobuf && w.Resource.JSONOnly:
		return metadataJSON
	}
	return w.Representation
}

// begins returns what the watch begins with: initial events, the events after a revision, or events from now on. endsInitial
// reports whether a bookmark ends the initial events.
func (w watchRequest) begins() (_ oracle.Beginning, endsInitial bool) {
	hasRevision := w.start != fromUnset && w.start != fromZero && w.start != fromZeros
	switch { // the first case that applies
	case w.initial == yes: // a streaming list
		return oracle.FromState, w.bookmarks
	case hasRevision:
		return oracle.FromRevision, false
	case w.initial == no:
		return oracle.FromNow, false
	}
	// Without a revision, kube-apiserver takes an absent sendInitialEvents for true.
	return oracle.FromState, w.bookmarks && w.watchList && w.start != fromZeros
}

// shouldHit reports whether listproxy should answer the watch from memory.
func (w watchRequest) shouldHit() bool {
	begins, endsInitial := w.begins()
	endsWithoutBookmark := begins == oracle.FromState && !endsInitial // the initial events
	switch {
	case w.unusual, w.start == fromOld, w.start == fromDistant, w.start == fromFuture, w.start == fromZeros:
		return false
	case begins == oracle.FromNow, endsWithoutBookmark:
		return false
	case w.start == fromUnset:
		return false // listproxy first asks for the newest revision (a revision probe), and forwards the watch if that is late
	}
	return w.question.shouldHit()
}

// randomWatch returns a random watch. Two of three are as clients write them, the others have unusual parameters or are odd. ok
// is false if no write is known whose revision the watch could name.
func (g *generator) randomWatch() (_ watchRequest, ok bool) {
	w := watchRequest{question: g.newRandomQuestion(), admin: g.cluster.Users[0], watchList: g.watchList}
	w.Semantics = watching
	g.setRepresentation(&w.question, pick(g, plainJSON, protobuf, metadataJSON, metadataProtobuf))
	g.setSelectors(&w.question, pick(g, byNothing, byNothing, byLabels, byMetadata, byFields, byBoth))
	g.setShard(&w.question)
	g.acceptEvents(&w)
	w.Odd = w.Namespace != "" && !w.Resource.Namespaced // kube-apiserver has no such path
	w.initial = pick(g, absent, absent, yes, yes, no)
	isUsual := !g.oneIn(3)
	if isUsual {
		g.beginAsClients(&w)
	} else {
		g.beginAnywhere(&w)
	}
	if !g.setResourceVersion(&w) {
		return w, false
	}
	if w.initial != absent {
		g.setChoice(&w, "sendInitialEvents", w.initial)
		w.Query.Set("resourceVersionMatch", "NotOlderThan")
	}
	g.setBookmarks(&w)
	g.setTimeout(&w)
	if !isUsual {
		g.addIneffective(&w)
		if g.oneIn(4) {
			g.makeWatchOdd(&w)
		}
	}
	return w, true
}

// acceptEvents makes the Accept header ask for events. Some clients add stream=watch to its first clause.
func (g *generator) acceptEvents(w *watchRequest) {
	accept := watchAccept(w.Header.Get("Accept"))
	if accept == "" {
		return
	}
	first, rest, _ := strings.Cut(accept, ",")
	if g.oneIn(4) && (first == asJSON || first == asProtobuf) {
		accept = strings.TrimSuffix(first+";stream=watch,"+rest, ",") // rest may be empty
	}
	w.Header.Set("Accept", accept)
}

// setBookmarks asks for bookmarks if w.bookmarks is true.
func (g *generator) setBookmarks(w *watchRequest) {
	if w.bookmarks {
		g.setChoice(w, "allowWatchBookmarks", yes)
	} else if g.oneIn(3) {
		g.setChoice(w, "allowWatchBookmarks", no)
	}
}

// setTimeout sets a timeout of 1 to 4 seconds (w.seconds), or one that is not over while events are compared, or none.
func (g *generator) setTimeout(w *watchRequest) {
	if g.oneIn(3) {
		w.seconds = 1 + g.rng.IntN(4)
		w.Query.Set("timeoutSeconds", strconv.Itoa(w.seconds))
	} else if g.oneIn(3) {
		w.Query.Set("timeoutSeconds", pick(g, "0", "300", "599"))
	}
}

// beginAsClients makes a watch begin as clients begin it. Most of these watches are the admin's.
func (g *generator) beginAsClients(w *watchRequest) {
	if !g.oneIn(8) {
		w.User = w.admin
	}
	w.bookmarks = !g.oneIn(6)
	w.start = pick(g, fromWithin, fromWithin, fromWithin, fromZero, fromZero, fromUnset, fromFuture)
	w.Query.Set("watch", "true")
}

// beginAnywhere makes a watch begin at any start.
func (g *generator) beginAnywhere(w *watchRequest) {
	w.bookmarks = !g.oneIn(3)
	w.start = pick(
		g,
		fromUnset, fromUnset,
		fromZero, fromZero, fromZero,
		fromWithin, fromWithin, fromWithin, fromWithin, fromWithin, // most often
		fromFuture, fromDistant, fromOld, fromZeros,
	)
	g.setChoice(w, "watch", yes)
}

// setChoice sets a parameter to a choice, now and then in another spelling that kube-apiserver accepts. The spelling yes, which
// only tests use, makes w unusual.
func (g *generator) setChoice(w *watchRequest, name string, c choice) {
	spelling := string(c)
	switch {
	case !g.oneIn(12): // as it is
	case c == yes:
		spelling = pick(g, "1", "yes", "TRUE", "True")
	default:
		spelling = pick(g, "0", "False")
	}
	w.Query.Set(name, spelling)
	w.unusual = w.unusual || spelling == "yes"
}

// setResourceVersion sets the resourceVersion that w.start says. ok is false if no write is known whose revision it could be.
func (g *generator) setResourceVersion(w *watchRequest) (ok bool) {
	const maxAge = 30 * time.Second // kube-apiserver keeps events for a shorter time than listproxy keeps lists
	newest := g.cluster.Ledger.NewestOfAll()
	switch w.start {
	case fromUnset:
		if g.oneIn(4) {
			w.Query.Set("resourceVersion", "")
		}
		return true
	case fromZero, fromZeros:
		w.Query.Set("resourceVersion", string(w.start))
		return true
	case fromWithin:
		revision, ok := g.cluster.Ledger.Pick(g.rng, w.Resource.GroupResource(), maxAge)
		if !ok {
			return false
		}
		w.Revision = revision
	case fromFuture:
		w.Revision = newest + 1 + uint64(g.rng.IntN(60)) // #nosec G115 -- not negative
	case fromDistant:
		w.Revision = newest + 1e6
	case fromOld:
		w.Revision = 1
	}
	w.Query.Set("resourceVersion", strconv.FormatUint(w.Revision, 10))
	return newest > 0
}

// addIneffective adds to one in five watches a parameter or a header that does not change the answer.
func (g *generator) addIneffective(w *watchRequest) {
	if !g.oneIn(5) {
		return
	}
	w.unusual = true
	if g.oneIn(5) {
		w.Header.Set("User-Agent", pick(g, "curl/8.5.0", "kubectl/v1.36.3"))
		return
	}
	added := pick(
		g, parameter{"limit", pick(g, "1", "500", "0")}, parameter{"pretty", pick(g, "true", "1")},
		parameter{"timeout", pick(g, "abc", "1s")}, parameter{"unknown", "parameter"},
	)
	w.Query.Set(added.name, added.value)
}

// makeWatchOdd changes the watch into one that is refused, or that ends at once.
func (g *generator) makeWatchOdd(w *watchRequest) {
	w.Odd = true
	// set and accept return functions that change w. One of all is chosen, and called at the end.
	set := func(name, value string) func() { return func() { w.Query.Set(name, value) } }
	accept := func(value string) func() { return func() { w.Header.Set("Accept", value) } }
	change := pick(
		g,
		// Values that cannot be read.
		set("resourceVersion", "abc"), set("resourceVersion", "-1"), set("resourceVersion", "1.5"), set("resourceVersion", " 1"),
		set("timeoutSeconds", ""), set("timeoutSeconds", "abc"), set("timeoutSeconds", "-1"), set("timeoutSeconds", "1.5"),
		set("limit", "x"), set("resourceVersionMatch", "Exact"), set("resourceVersionMatch", "Other"), set("resourceVersionMatch", ""),
		// Parameters that must come together, or must not.
		func() { w.Query.Del("sendInitialEvents"); w.Query.Set("resourceVersionMatch", "NotOlderThan") },
		func() { w.Query.Set("sendInitialEvents", "true"); w.Query.Del("resourceVersionMatch") },
		func() { w.Query.Set("continue", "x"); w.Query.Set("resourceVersionMatch", "NotOlderThan") },
		// Selectors that are refused.
		set("labelSelector", "tier in ("), set("labelSelector", "=x"), set("fieldSelector", "spec.unknown=x"), set("fieldSelector", "bad"),
		set("fieldSelector", "metadata.name>a"),
		// Representations that no watch has, or that are forwarded.
		accept("application/yaml"), accept("application/yaml,application/json"), accept("text/plain"), accept("application/json;as=Unknown;v=v1;g=meta.k8s.io"),
		accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"), accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v9"),
		accept("application/cbor"), accept("application/cbor-seq,application/json"), accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
		// Unusual spellings.
		func() { w.RawQuery = "watch=%zz" },
		func() { // the old path of watches, which custom resources do not have
			w.Path = strings.Replace(w.Resource.Path(w.Namespace), "/v1/", "/v1/watch/", 1)
			w.Query.Del("watch")
		},
	)
	change()
}
