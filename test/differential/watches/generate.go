package watches

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
)

// recent is how old a revision may be that is asked for.
const recent = 30 * time.Second

// generator makes up watches. It is for one goroutine.
type generator struct {
	rng     *rand.Rand
	of      *differential.Generator
	cluster *cluster.Cluster
	options Options
}

func (g *generator) one(n int) bool { return g.rng.IntN(n) == 0 }

func pick[T any](g *generator, of ...T) T { return of[g.rng.IntN(len(of))] }

var selectors = []differential.Selector{differential.None, differential.None, differential.Labels, differential.Metadata, differential.Fields, differential.Both}

// form makes up a watch. It is not ok if no revision is known yet.
func (g *generator) form() (form, bool) {
	f := form{selector: pick(g, selectors...), admin: g.cluster.Users()[0]}
	f.Question = g.of.Subject(f.selector)
	f.representation = pick(g, representations...)
	f.bookmarks = !g.one(3)
	f.initial = pick(g, absent, absent, yes, yes, no)
	f.start = pick(g, starts...)
	usual := !g.one(3)
	if usual {
		g.usual(&f)
	}
	if accept := pick(g, accepts[f.representation]...); accept != "" {
		f.Header.Set("Accept", accept)
	}
	f.odd = f.Namespace != "" && !f.Resource.Namespaced // there is no such path
	f.Query.Set("watch", "true")
	if !usual {
		f.Query.Set("watch", g.spelled(&f, yes))
	}
	if !g.startAt(&f) {
		return f, false
	}
	if f.initial != absent {
		f.Query.Set("sendInitialEvents", g.spelled(&f, f.initial))
		f.Query.Set("resourceVersionMatch", "NotOlderThan")
	}
	if f.bookmarks {
		f.Query.Set("allowWatchBookmarks", g.spelled(&f, yes))
	} else if g.one(3) {
		f.Query.Set("allowWatchBookmarks", g.spelled(&f, no))
	}
	if f.seconds == 0 && g.one(3) {
		f.seconds = 1 + g.rng.IntN(4)
	}
	if f.seconds > 0 {
		f.Query.Set("timeoutSeconds", strconv.Itoa(f.seconds))
	} else if g.one(3) {
		f.Query.Set("timeoutSeconds", pick(g, "0", "300", "599"))
	}
	if !usual {
		g.idle(&f)
	}
	if !usual && g.one(4) {
		g.oddity(&f)
	}
	f.answerable = f.memory(g.options.WatchList)
	return f, true
}

// usual makes a watch one that a client would send who may see all.
func (g *generator) usual(f *form) {
	if !g.one(8) {
		f.User = f.admin
	}
	f.bookmarks = !g.one(6)
	f.start = pick(g, within, within, within, zero, zero, unset, future)
}

// spelled writes a choice in one of the ways that the API server understands.
func (g *generator) spelled(f *form, c choice) string {
	if !g.one(12) {
		return string(c)
	}
	spelled := pick(g, "0", "False")
	if c == yes {
		spelled = pick(g, "1", "yes", "TRUE", "True")
	}
	f.unusual = f.unusual || spelled == "yes"
	return spelled
}

// startAt says from where. It is not ok if no revision is known yet.
func (g *generator) startAt(f *form) bool {
	newest := g.cluster.Ledger.NewestOfAll()
	switch f.start {
	case unset:
		if g.one(4) {
			f.Query.Set("resourceVersion", "")
		}
		return true
	case zero, zeros:
		f.Query.Set("resourceVersion", string(f.start))
		return true
	case within:
		revision, ok := g.cluster.Ledger.Pick(g.rng, f.Resource.GroupResource(), recent)
		if !ok {
			return false
		}
		f.Revision = revision
	case future:
		f.Revision = newest + 1 + uint64(g.rng.IntN(60)) // #nosec G115 -- not negative
	case distant:
		f.Revision = newest + 1e6
	case old:
		f.Revision = 1
	}
	f.Query.Set("resourceVersion", strconv.FormatUint(f.Revision, 10))
	return newest > 0
}

// idle adds what changes nothing.
func (g *generator) idle(f *form) {
	n := g.rng.IntN(25)
	f.unusual = f.unusual || n < 5
	switch n {
	case 0:
		f.Query.Set("limit", pick(g, "1", "500", "0"))
	case 1:
		f.Query.Set("pretty", pick(g, "true", "1"))
	case 2:
		f.Query.Set("timeout", pick(g, "abc", "1s"))
	case 3:
		f.Header.Set("User-Agent", pick(g, "curl/8.5.0", "kubectl/v1.36.3"))
	case 4:
		f.Query.Set("unknown", "parameter")
	}
}

// oddity makes a watch one that is refused, or that ends at once.
func (g *generator) oddity(f *form) {
	f.odd = true
	set := func(name, value string) func() { return func() { f.Query.Set(name, value) } }
	accept := func(value string) func() { return func() { f.Header.Set("Accept", value) } }
	pick(
		g,
		set("resourceVersion", "abc"), set("resourceVersion", "-1"), set("resourceVersion", "1.5"), set("resourceVersion", " 1"),
		set("timeoutSeconds", ""), set("timeoutSeconds", "abc"), set("timeoutSeconds", "-1"), set("timeoutSeconds", "1.5"),
		set("limit", "x"), set("resourceVersionMatch", "Exact"), set("resourceVersionMatch", "Other"), set("resourceVersionMatch", ""),
		func() { f.Query.Del("sendInitialEvents"); f.Query.Set("resourceVersionMatch", "NotOlderThan") },
		func() { f.Query.Set("sendInitialEvents", "true"); f.Query.Del("resourceVersionMatch") },
		func() { f.Query.Set("continue", "x"); f.Query.Set("resourceVersionMatch", "NotOlderThan") },
		set("labelSelector", "tier in ("), set("labelSelector", "=x"), set("fieldSelector", "spec.unknown=x"), set("fieldSelector", "bad"),
		set("fieldSelector", "metadata.name>a"),
		accept("application/yaml"), accept("application/yaml,application/json"), accept("text/plain"), accept("application/json;as=Unknown;v=v1;g=meta.k8s.io"),
		accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"), accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v9"),
		accept("application/cbor"), accept("application/cbor-seq,application/json"), accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
		func() { f.RawQuery = "watch=%zz" },
		func() { // by an old path, which custom resources have not
			f.Path = strings.Replace(f.Resource.Path(f.Namespace), "/v1/", "/v1/watch/", 1)
			f.Query.Del("watch")
		},
	)()
}
