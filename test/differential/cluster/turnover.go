package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// Turnover makes objects end as [Cluster.Churn] does not, until ctx ends: with a finalizer, which
// keeps them until it is taken away, and with their namespace.
func (c *Cluster) Turnover(ctx context.Context, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 4))
	for i := 0; poll.Pause(ctx, 200*time.Millisecond); i++ {
		if i%4 == 0 {
			c.endNamespace(ctx, rng, fmt.Sprintf("doomed-%d", i))
		} else {
			c.endFinalized(ctx, rng, fmt.Sprintf("finalized-%d", i))
		}
	}
}

// endable returns the resources of the objects that end.
func (c *Cluster) endable() []Resource {
	return slices.DeleteFunc(c.writable(), func(r Resource) bool {
		return !slices.Contains([]string{"configmaps", "gadgets", "pods", "leases"}, r.Resource)
	})
}

// endFinalized creates an object with a finalizer, deletes it, changes it, and lets it go.
func (c *Cluster) endFinalized(ctx context.Context, rng *rand.Rand, name string) {
	all := c.endable()
	r := all[rng.IntN(len(all))]
	namespace := c.Namespaces[rng.IntN(len(c.Namespaces))]
	finalizers := func(of ...string) object { return object{"finalizers": of} }
	body := r.build(rng)
	body["metadata"] = finalizers("listproxy.test/wait")
	if c.write(ctx, r, http.MethodPost, namespace, name, "", body) != http.StatusCreated {
		return
	}
	c.Delete(ctx, r, namespace, name, true)
	c.write(ctx, r, http.MethodPatch, namespace, name, "", object{"metadata": object{"labels": labels(rng)}})
	// The answer has the object as it was before it went, whose revision is no event's.
	_, _, _ = c.send(ctx, http.MethodPatch, r.Path(namespace)+"/"+name, object{"metadata": finalizers()})
}

// endNamespace creates a namespace with objects in it, and deletes it as its controller would,
// which there is none of.
func (c *Cluster) endNamespace(ctx context.Context, rng *rand.Rand, namespace string) {
	if c.CreateNamespace(ctx, namespace) != nil {
		return
	}
	all := c.endable()
	for _, r := range all {
		for i := range 3 {
			c.write(ctx, r, http.MethodPost, namespace, fmt.Sprintf("o-%d", i), "", label(rng, r.build(rng)))
		}
	}
	_, _, _ = c.send(ctx, http.MethodDelete, "/api/v1/namespaces/"+namespace, object{})
	for _, r := range all {
		_, _, _ = c.send(ctx, http.MethodDelete, r.Path(namespace), object{"gracePeriodSeconds": 0})
	}
	c.finalize(ctx, namespace)
}
