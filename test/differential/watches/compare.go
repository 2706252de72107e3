package watches

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// Options of a comparison.
type Options struct {
	// Bound is how old a state may be that is given for resourceVersion=0.
	Bound time.Duration
	// Patience is how long something may take to come.
	Patience time.Duration
	// Begun are revisions of resources that listproxy knew from the start.
	Begun map[schema.GroupResource]uint64
	// WatchList is whether the API server has streaming lists.
	WatchList bool
}

// Comparator puts the same watch to kube-apiserver and to listproxy, and compares what they say. It
// is safe for concurrent use.
type Comparator struct {
	cluster       *cluster.Cluster
	direct, proxy *differential.Side
	options       Options
	report        *differential.Report
	learned       templates
}

// NewComparator returns a comparator of a cluster's API server with listproxy.
func NewComparator(c *cluster.Cluster, proxy *differential.Side, report *differential.Report, o Options) *Comparator {
	return &Comparator{cluster: c, direct: differential.Direct(c.Plane), proxy: proxy, options: o, report: report}
}

// Run compares until ctx ends, with so many watches at a time.
func (c *Comparator) Run(ctx context.Context, seed uint64, workers int) {
	var all sync.WaitGroup
	seeds := rand.New(rand.NewPCG(seed, 5))
	for range workers {
		g := c.generator(cluster.Split(seeds))
		all.Go(func() {
			for ctx.Err() == nil {
				if f, ok := g.form(); ok {
					c.compare(ctx, g, f)
				}
			}
		})
	}
	all.Wait()
}

func (c *Comparator) generator(rng *rand.Rand) *generator {
	of := differential.NewGenerator(c.cluster, cluster.Split(rng), differential.Options{})
	return &generator{rng: rng, cluster: c.cluster, options: c.options, of: of}
}

// now is etcd's revision.
func (c *Comparator) now(ctx context.Context) (uint64, error) {
	q := differential.Question{Path: "/api/v1/namespaces", Query: url.Values{"limit": {"1"}}, User: c.cluster.Users()[0]}
	a, err := c.direct.Ask(ctx, q)
	if err != nil {
		return 0, err
	}
	return ask.Answer{Code: a.Status, Body: a.Body}.Revision()
}

// past is a revision that no state of a resource may be from before. kube-apiserver's own cache of
// a resource that nobody writes is of the last write.
func (c *Comparator) past(r cluster.Resource) uint64 {
	kind := r.GroupResource()
	return max(c.options.Begun[kind], c.cluster.Ledger.Before(kind, time.Now().Add(-c.options.Bound)))
}

// errElsewhere says that the two sides were asked at moments that cannot be compared.
var errElsewhere = errors.New("asked at other moments")

// compare puts a watch to both sides, reads for a while, and compares.
func (c *Comparator) compare(ctx context.Context, g *generator, f form) {
	const tries = 8
	for try := 0; ; try++ {
		p := &pair{Comparator: c, form: f, reads: time.Duration(100+g.rng.IntN(3000)) * time.Millisecond}
		d, err := p.run(ctx)
		p.close()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errElsewhere) && try < tries:
			c.report.Count("asked again")
			continue
		case errors.Is(err, errElsewhere):
			c.report.Count("asked again, in vain")
			return
		case err != nil:
			d = &differential.Difference{Kind: differential.Silent, Detail: err.Error()}
		}
		if d == nil {
			p.compared()
			return
		}
		d.Question = f.String()
		if p.proxied != nil {
			d.CacheStatus = p.proxied.header.Get("Cache-Status")
		}
		c.report.Differs(*d)
		return
	}
}
