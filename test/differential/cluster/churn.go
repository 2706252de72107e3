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

// Churn creates, replaces, patches and deletes objects of all resources but the spared ones until ctx ends. It sends about
// perSecond writes a second if the API server is fast enough. In addition, it deletes objects that have a finalizer, and
// objects together with their namespace. It ignores errors: another worker may have been faster, or the API server may be down.
func (c *Cluster) Churn(ctx context.Context, seed uint64, perSecond int, spared ...string) {
	const workers = 4
	pause := workers * time.Second / time.Duration(perSecond) // of each worker
	resources := slices.DeleteFunc(c.writable(), func(r Resource) bool { return slices.Contains(spared, r.Resource) })
	var all sync.WaitGroup
	seeds := rand.New(rand.NewPCG(seed, churnStream))
	for range workers {
		rng := Split(seeds)
		all.Go(func() {
			for range poll.Ticks(ctx, pause) {
				c.change(ctx, rng, resources)
			}
		})
	}
	rng := Split(seeds)
	all.Go(func() { c.deleteInSteps(ctx, rng, resources) })
	all.Wait()
}

// Split returns a new source of random numbers, for another goroutine.
func Split(seeds *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(seeds.Uint64(), seeds.Uint64())) }

// writable returns the resources that are not read-only.
func (c *Cluster) writable() []Resource {
	return slices.DeleteFunc(slices.Clone(c.Resources), func(r Resource) bool { return r.ReadOnly })
}

// change sends one random write.
func (c *Cluster) change(ctx context.Context, rng *rand.Rand, resources []Resource) {
	r := pick(rng, resources)
	namespace := ""
	if r.Namespaced {
		namespace = pick(rng, c.Namespaces)
	}
	name := pick(rng, r.Names())
	writeNew := func(method string) {
		body := maybeLabelled(rng, r.build(rng))
		_, _ = c.write(ctx, r, request{method: method, namespace: namespace, name: name, body: body})
	}
	isReplaceable := r.Resource == "configmaps" || r.Resource == "secrets" // no others are replaced
	percent := rng.IntN(100)
	isGraceful := rng.IntN(4) == 0 // a fourth of the deletions has the usual grace period
	// 50 % patches, 20 % creations, 10 % replacements, 19 % deletions, and 1 % deletions of many objects.
	switch {
	case percent < 50: // patches an object, or creates it if it is missing
		p := r.patch(rng)
		if p.subresource == "" {
			p.body = maybeLabelled(rng, p.body)
		}
		a, _ := c.write(ctx, r, request{
			method: http.MethodPatch, namespace: namespace, name: name, subresource: p.subresource, body: p.body,
		})
		if a.Code == http.StatusNotFound {
			writeNew(http.MethodPost)
		}
	case percent < 70:
		writeNew(http.MethodPost)
	case percent < 80 && isReplaceable: // of other resources an object is deleted
		writeNew(http.MethodPut)
	case percent < 99 && isGraceful:
		c.markDeleted(ctx, r, namespace, name)
	case percent < 99:
		c.DeleteNow(ctx, r, namespace, name)
	case r.Namespaced && r.Resource != "secrets": // deletes all objects of the namespace with this label
		_ = c.deleteNow(ctx, r.Path(namespace)+"?labelSelector=turn%3D3")
	}
}

// deleteInSteps deletes objects until ctx ends, in the two ways that take several writes: objects that have a finalizer, and
// objects together with their namespace.
func (c *Cluster) deleteInSteps(ctx context.Context, rng *rand.Rand, resources []Resource) {
	const pause = 200 * time.Millisecond
	isRare := func(r Resource) bool {
		return !slices.Contains([]string{"configmaps", "gadgets", "pods", "leases"}, r.Resource)
	}
	deletable := slices.DeleteFunc(slices.Clone(resources), isRare)
	for i := 0; clock.Sleep(ctx, pause); i++ {
		if i%4 == 0 {
			c.deleteNamespace(ctx, rng, deletable, fmt.Sprintf("doomed-%d", i))
		} else {
			c.deleteFinalized(ctx, rng, pick(rng, deletable), fmt.Sprintf("finalized-%d", i))
		}
	}
}

// deleteFinalized creates an object with a finalizer, deletes it, changes it, and removes the finalizer.
func (c *Cluster) deleteFinalized(ctx context.Context, rng *rand.Rand, r Resource, name string) {
	namespace := pick(rng, c.Namespaces)
	metadataWith := func(finalizers ...string) object { return object{"finalizers": finalizers} }
	body := r.build(rng)
	body["metadata"] = metadataWith("listproxy.test/wait")
	if _, err := c.Create(ctx, r, namespace, name, body); err != nil {
		return
	}
	c.DeleteNow(ctx, r, namespace, name)
	patch := object{"metadata": object{"labels": randomLabels(rng)}}
	_, _ = c.write(ctx, r, request{method: http.MethodPatch, namespace: namespace, name: name, body: patch})
	// The revision of this answer must not be recorded, as write would do: the answer has the object as it was before it was
	// deleted, and no event has that revision.
	_, _ = c.send(ctx, http.MethodPatch, r.Path(namespace)+"/"+name, object{"metadata": metadataWith()})
}

// deleteNamespace creates a namespace with objects, and deletes both as the namespace controller does. (No controllers run
// here.)
func (c *Cluster) deleteNamespace(ctx context.Context, rng *rand.Rand, resources []Resource, namespace string) {
	if c.CreateNamespace(ctx, namespace) != nil {
		return
	}
	const objects = 3 // of each resource
	for _, r := range resources {
		for i := range objects {
			_, _ = c.Create(ctx, r, namespace, fmt.Sprintf("o-%d", i), maybeLabelled(rng, r.build(rng)))
		}
	}
	_, _ = c.send(ctx, http.MethodDelete, "/api/v1/namespaces/"+namespace, object{})
	for _, r := range resources {
		_ = c.deleteNow(ctx, r.Path(namespace))
	}
	c.finalize(ctx, namespace)
}
