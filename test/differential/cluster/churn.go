package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// Churn creates, updates, patches and deletes objects of all resources until ctx ends, about perSecond times a second if the
// API server is fast enough, but not of the resources spared. It also deletes objects by finalizers and with namespaces.
// Errors are ignored: another worker may have been faster, or the API server may be down.
func (c *Cluster) Churn(ctx context.Context, seed uint64, perSecond int, spared ...string) {
	const workers = 4
	resources := slices.DeleteFunc(c.writable(), func(r Resource) bool { return slices.Contains(spared, r.Resource) })
	var all sync.WaitGroup
	seeds := rand.New(rand.NewPCG(seed, 1))
	for range workers {
		rng := Split(seeds)
		all.Go(func() {
			for range poll.Ticks(ctx, time.Second*workers/time.Duration(perSecond)) {
				c.change(ctx, rng, resources)
			}
		})
	}
	rng := Split(seeds)
	all.Go(func() { c.turnover(ctx, rng, resources) })
	all.Wait()
}

// Split returns a new source of random numbers, for another goroutine.
func Split(seeds *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(seeds.Uint64(), seeds.Uint64())) }

// writable returns the resources that are not only read.
func (c *Cluster) writable() []Resource {
	var all []Resource
	for _, r := range c.Resources {
		if !r.Reader {
			all = append(all, r)
		}
	}
	return all
}

// change sends one random write.
func (c *Cluster) change(ctx context.Context, rng *rand.Rand, resources []Resource) {
	r := resources[rng.IntN(len(resources))]
	namespace := ""
	if r.Namespaced {
		namespace = c.Namespaces[rng.IntN(len(c.Namespaces))]
	}
	names := r.Names()
	name := names[rng.IntN(len(names))]
	pick := rng.IntN(100) // per cent
	switch {
	case pick < 50:
		patch, subresource := r.patch(rng)
		if subresource == "" {
			patch = label(rng, patch)
		}
		if a, _ := c.write(ctx, r, http.MethodPatch, namespace, name, subresource, patch); a.Code == http.StatusNotFound {
			_, _ = c.write(ctx, r, http.MethodPost, namespace, name, "", label(rng, r.build(rng)))
		}
	case pick < 70:
		_, _ = c.write(ctx, r, http.MethodPost, namespace, name, "", label(rng, r.build(rng)))
	case pick < 80 && (r.Resource == "configmaps" || r.Resource == "secrets"):
		_, _ = c.write(ctx, r, http.MethodPut, namespace, name, "", label(rng, r.build(rng)))
	case pick < 99:
		c.Delete(ctx, r, namespace, name, rng.IntN(4) > 0)
	case r.Namespaced && r.Resource != "secrets":
		_, _ = c.send(ctx, http.MethodDelete, r.Path(namespace)+"?labelSelector=turn%3D3", object{"gracePeriodSeconds": 0})
	}
}

// turnover deletes objects in the two ways that take several writes: with a finalizer, and with their namespace.
func (c *Cluster) turnover(ctx context.Context, rng *rand.Rand, resources []Resource) {
	ending := slices.DeleteFunc(slices.Clone(resources), func(r Resource) bool {
		return !slices.Contains([]string{"configmaps", "gadgets", "pods", "leases"}, r.Resource)
	})
	for i := 0; clock.Sleep(ctx, 200*time.Millisecond); i++ {
		if i%4 == 0 {
			c.endNamespace(ctx, rng, ending, fmt.Sprintf("doomed-%d", i))
		} else {
			c.endFinalized(ctx, rng, ending[rng.IntN(len(ending))], fmt.Sprintf("finalized-%d", i))
		}
	}
}

// endFinalized creates an object with a finalizer, deletes it, changes it, and removes the finalizer.
func (c *Cluster) endFinalized(ctx context.Context, rng *rand.Rand, r Resource, name string) {
	namespace := c.Namespaces[rng.IntN(len(c.Namespaces))]
	finalizers := func(names ...string) object { return object{"finalizers": names} }
	body := r.build(rng)
	body["metadata"] = finalizers("listproxy.test/wait")
	if _, err := c.write(ctx, r, http.MethodPost, namespace, name, "", body); err != nil {
		return
	}
	c.Delete(ctx, r, namespace, name, true)
	_, _ = c.write(ctx, r, http.MethodPatch, namespace, name, "", object{"metadata": object{"labels": labels(rng)}})
	// Not by write, since the answer has the object before the deletion, whose revision is not that of an event.
	_, _ = c.send(ctx, http.MethodPatch, r.Path(namespace)+"/"+name, object{"metadata": finalizers()})
}

// endNamespace creates a namespace with objects, and deletes them as the namespace controller would, which does not run.
func (c *Cluster) endNamespace(ctx context.Context, rng *rand.Rand, all []Resource, namespace string) {
	if c.CreateNamespace(ctx, namespace) != nil {
		return
	}
	for _, r := range all {
		for i := range 3 {
			_, _ = c.write(ctx, r, http.MethodPost, namespace, fmt.Sprintf("o-%d", i), "", label(rng, r.build(rng)))
		}
	}
	_, _ = c.send(ctx, http.MethodDelete, "/api/v1/namespaces/"+namespace, object{})
	for _, r := range all {
		_, _ = c.send(ctx, http.MethodDelete, r.Path(namespace), object{"gracePeriodSeconds": 0})
	}
	c.finalize(ctx, namespace)
}
