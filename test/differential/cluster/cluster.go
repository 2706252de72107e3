// Package cluster fills a control plane with resources of many shapes, changes them all the time, and has users with rights of
// many kinds.
package cluster

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

// Ledger has the confirmed writes by resource.
type Ledger = oracle.Ledger[schema.GroupResource]

// The second numbers with which Churn and fill seed their generators (rand.NewPCG), so that the choices of one do not depend on
// those of the other.
const churnStream, fillStream = 1, 2

// noTimeout means that only its context ends a request.
const noTimeout = 0

// Cluster is a control plane with resources of many shapes in it.
type Cluster struct {
	Plane      *controlplane.ControlPlane
	Resources  []Resource
	Namespaces []string
	Ledger     *Ledger
	// Users are those who send requests. The first is the admin, the second alice.
	Users []User

	// writers are clients of the admin, one for each server. They send writes in turn.
	writers []*ask.Client
	writes  atomic.Uint64 // the number of writes so far, which chooses the writer
}

// New defines the custom resources, and creates namespaces, users, and every second of the possible objects.
func New(ctx context.Context, plane *controlplane.ControlPlane, seed uint64) (*Cluster, error) {
	writer, err := ask.New(plane.RESTConfig(controlplane.Admin), noTimeout)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Plane:     plane,
		Resources: Resources(),
		// A namespace's name can be a prefix of another's: "a-b/x" comes before "a/x" in the order of keys.
		Namespaces: []string{"team-a", "team-b", "a", "a-b", "a0", "team-a-2"},
		Ledger:     new(Ledger),
		writers:    []*ask.Client{writer},
	}
	for _, d := range definitions() {
		if _, err := c.send(ctx, http.MethodPost, kinds.Definitions, d); err != nil {
			return nil, err
		}
	}
	for _, namespace := range c.Namespaces {
		if err := c.CreateNamespace(ctx, namespace); err != nil {
			return nil, err
		}
	}
	for _, r := range c.Resources {
		err := poll.Retry(ctx, "waiting until "+r.Resource+" are served", func() error {
			_, err := c.send(ctx, http.MethodGet, r.Path("")+"?limit=1", nil)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	c.Users, err = newUsers(ctx, plane)
	if err != nil {
		return nil, err
	}
	return c, c.fill(ctx, seed)
}

// WriteThrough adds a server to those through which writes go in turn. It must not be called during writes.
func (c *Cluster) WriteThrough(admin *rest.Config) error {
	writer, err := ask.New(admin, noTimeout)
	if err != nil {
		return err
	}
	c.writers = append(c.writers, writer)
	return nil
}

// SeenThrough returns this cluster as it is seen through another server, with some of its resources. That server may give other
// revisions, so the returned cluster has a ledger of its own. It begins with one write of each resource through that server.
// Users with certificates are left out, since TLS ends at the server.
func (c *Cluster) SeenThrough(ctx context.Context, admin *rest.Config, resources []Resource) (*Cluster, error) {
	seen := &Cluster{
		Plane: c.Plane, Resources: resources, Namespaces: c.Namespaces, Ledger: new(Ledger),
		Users: slices.DeleteFunc(slices.Clone(c.Users), func(u User) bool { return u.Certificate != nil }),
	}
	if err := seen.WriteThrough(admin); err != nil {
		return nil, err
	}
	for _, r := range seen.writable() {
		if _, err := seen.Touch(ctx, r); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// ForgetWrites empties the ledger and returns the newest revision that it had of each resource. A listproxy that starts now
// lacks the earlier states, so tests must not ask it for them.
func (c *Cluster) ForgetWrites() (newest map[schema.GroupResource]uint64) {
	newest = map[schema.GroupResource]uint64{}
	for _, r := range c.Resources {
		newest[r.GroupResource()] = c.Ledger.Newest(r.GroupResource())
	}
	c.Ledger.Forget()
	return newest
}

// CreateNamespace creates a namespace, unless it exists.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	return c.writers[0].Ensure(ctx, "/api/v1/namespaces", kinds.Namespace(name))
}

// fill creates every second object: those names of [Resource.Names] with an odd index. Churn creates the others.
func (c *Cluster) fill(ctx context.Context, seed uint64) error {
	var all errgroup.Group
	seeds := rand.New(rand.NewPCG(seed, fillStream))
	for _, r := range c.writable() {
		rng := Split(seeds)
		all.Go(func() error {
			namespaces := c.Namespaces
			if !r.Namespaced {
				namespaces = []string{""}
			}
			for _, namespace := range namespaces {
				for i, name := range r.Names() {
					if i%2 == 0 {
						continue
					}
					if _, err := c.Create(ctx, r, namespace, name, maybeLabelled(rng, r.build(rng))); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// Eager returns the value of --eager for all resources that listproxy caches.
func (c *Cluster) Eager() string {
	var names []string
	for _, r := range c.Resources {
		if r.Cached {
			names = append(names, r.kind().Eager())
		}
	}
	return strings.Join(names, ",")
}
