// Package cluster is a control plane with resources of many shapes, which changes all the time, and
// users with many sorts of rights.
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

// Ledger is what was written when, by resource.
type Ledger = oracle.Ledger[schema.GroupResource]

// Cluster is a control plane with resources of many shapes in it.
type Cluster struct {
	Plane      *controlplane.ControlPlane
	Resources  []Resource
	Namespaces []string
	Ledger     *Ledger
	// Users are who asks, the admin first, and then alice.
	Users []User

	// writers are the doors that writes take in turn.
	writers []*ask.Client
	turn    atomic.Uint64
}

// New defines custom resources, makes namespaces, and fills them to about a half.
func New(ctx context.Context, plane *controlplane.ControlPlane, seed uint64) (*Cluster, error) {
	writer, err := ask.New(plane.RESTConfig(controlplane.Admin), 0)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Plane:     plane,
		Resources: Resources(),
		// In the order of keys "a-b/x" comes before "a/x".
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
		err := poll.Retry(ctx, r.Resource+" to be served", func() error {
			_, err := c.send(ctx, http.MethodGet, r.Path("")+"?limit=1", nil)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if c.Users, err = newUsers(ctx, plane); err != nil {
		return nil, err
	}
	return c, c.fill(ctx, seed)
}

// WriteThrough opens one more door to the API server, which the admin's writes take in turn with the
// others. It must be called before anything is written at the same time.
func (c *Cluster) WriteThrough(door *rest.Config) error {
	writer, err := ask.New(door, 0)
	if err == nil {
		c.writers = append(c.writers, writer)
	}
	return err
}

// At returns the cluster as it is behind another door: with revisions of its own, and without those who log in
// by a certificate, which ends at a door.
func (c *Cluster) At(ctx context.Context, door *rest.Config, resources []Resource) (*Cluster, error) {
	at := &Cluster{
		Plane: c.Plane, Resources: resources, Namespaces: c.Namespaces, Ledger: new(Ledger),
		Users: slices.DeleteFunc(slices.Clone(c.Users), func(u User) bool { return u.Certificate != nil }),
	}
	err := at.WriteThrough(door)
	for _, r := range at.writable() {
		if err == nil {
			_, err = at.Touch(ctx, r)
		}
	}
	return at, err
}

// Begun returns a revision of each resource, and forgets all that was written: who starts now knows no more.
func (c *Cluster) Begun() map[schema.GroupResource]uint64 {
	begun := map[schema.GroupResource]uint64{}
	for _, r := range c.Resources {
		begun[r.GroupResource()] = c.Ledger.Newest(r.GroupResource())
	}
	c.Ledger.Forget()
	return begun
}

// CreateNamespace creates a namespace, if it is not there.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	return c.writers[0].Ensure(ctx, "/api/v1/namespaces", kinds.Namespace(name))
}

// fill creates about half of the objects that there can be.
func (c *Cluster) fill(ctx context.Context, seed uint64) error {
	var all errgroup.Group
	seeds := rand.New(rand.NewPCG(seed, 2))
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
					if _, err := c.Create(ctx, r, namespace, name, label(rng, r.build(rng))); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// Eager is the value of --eager for all resources that are kept in memory.
func (c *Cluster) Eager() string {
	var names []string
	for _, r := range c.Resources {
		if r.Cached {
			names = append(names, r.kind().Eager())
		}
	}
	return strings.Join(names, ",")
}
