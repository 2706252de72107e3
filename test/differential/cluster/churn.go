package cluster

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// Churn creates, updates, patches and deletes objects of all resources until ctx ends, about so
// many times a second if the API server can. What fails, fails: others may have been faster, or
// the API server may be down. Resources of the names spared are left alone.
func (c *Cluster) Churn(ctx context.Context, seed uint64, workers, perSecond int, spared ...string) {
	resources := slices.DeleteFunc(c.writable(), func(r Resource) bool { return slices.Contains(spared, r.Resource) })
	var all sync.WaitGroup
	seeds := rand.New(rand.NewPCG(seed, 1))
	for range workers {
		rng := Split(seeds)
		all.Go(func() {
			for range poll.Ticks(ctx, time.Second*time.Duration(workers)/time.Duration(perSecond)) {
				c.change(ctx, rng, resources)
			}
		})
	}
	all.Wait()
}

// Split returns a source of its own for another goroutine.
func Split(seeds *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(seeds.Uint64(), seeds.Uint64())) }

// writable returns the resources that are written.
func (c *Cluster) writable() []Resource {
	var all []Resource
	for _, r := range c.Resources {
		if !r.Reader {
			all = append(all, r)
		}
	}
	return all
}

// change does one write of one of the resources.
func (c *Cluster) change(ctx context.Context, rng *rand.Rand, resources []Resource) {
	r := resources[rng.IntN(len(resources))]
	namespace := ""
	if r.Namespaced {
		namespace = c.Namespaces[rng.IntN(len(c.Namespaces))]
	}
	names := r.Names()
	name := names[rng.IntN(len(names))]
	switch pick := rng.IntN(100); {
	case pick < 50:
		patch, subresource := r.patch(rng)
		if subresource == "" {
			patch = label(rng, patch)
		}
		if c.write(ctx, r, http.MethodPatch, namespace, name, subresource, patch) == http.StatusNotFound {
			c.write(ctx, r, http.MethodPost, namespace, name, "", label(rng, r.build(rng)))
		}
	case pick < 70:
		c.write(ctx, r, http.MethodPost, namespace, name, "", label(rng, r.build(rng)))
	case pick < 80 && (r.Resource == "configmaps" || r.Resource == "secrets"):
		c.write(ctx, r, http.MethodPut, namespace, name, "", label(rng, r.build(rng)))
	case pick < 99:
		c.Delete(ctx, r, namespace, name, rng.IntN(4) > 0)
	case r.Namespaced && r.Resource != "secrets":
		c.deleteCollection(ctx, r, namespace)
	}
}
