package cluster

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

// request is a write of one object, or of one of its subresources.
type request struct {
	method          string // POST, PUT or PATCH
	namespace, name string
	subresource     string // "": the object itself
	body            object
}

// write sends a write, and adds the revision of the answer to the ledger.
func (c *Cluster) write(ctx context.Context, r Resource, w request) (ask.Answer, error) {
	body := maps.Clone(w.body)
	switch {
	case w.subresource == binding: // a binding is created by a POST
		w.method = http.MethodPost
		body["metadata"] = object{"name": w.name}
	case w.method != http.MethodPatch:
		body["apiVersion"] = r.GroupVersion().String()
		body["kind"] = r.Kind
		body["metadata"] = metadataNamed(body["metadata"], w.name)
	}
	path := r.Path(w.namespace)
	switch {
	case w.subresource != "":
		path += "/" + w.name + "/" + w.subresource
	case w.method != http.MethodPost:
		path += "/" + w.name
	}
	a, err := c.send(ctx, w.method, path, body)
	if err == nil {
		revision, _ := a.Revision()
		c.Ledger.Confirm(r.GroupResource(), revision)
	}
	return a, err
}

// metadataNamed returns a copy of metadata with a name. If metadata is nil, the copy has a label that the tests select by.
func metadataNamed(metadata any, name string) object {
	all, _ := metadata.(object)
	all = maps.Clone(all)
	if all == nil {
		all = object{"labels": object{"tier": "web"}}
	}
	if set, ok := all["labels"].(object); ok {
		set = maps.Clone(set)
		// Only a patch may have a nil, which deletes the label.
		maps.DeleteFunc(set, func(_ string, value any) bool { return value == nil })
		all["labels"] = set
	}
	all["name"] = name
	return all
}

// Create creates an object and returns the revision of the write.
func (c *Cluster) Create(ctx context.Context, r Resource, namespace, name string, body object) (uint64, error) {
	a, err := c.write(ctx, r, request{method: http.MethodPost, namespace: namespace, name: name, body: body})
	if err != nil {
		return 0, err
	}
	return a.Revision()
}

// Touch creates the first object of a resource if it is missing, changes it, and returns the revision of the change.
func (c *Cluster) Touch(ctx context.Context, r Resource) (uint64, error) {
	namespace := ""
	if r.Namespaced {
		namespace = c.Namespaces[0]
	}
	rng := rand.New(rand.NewPCG(c.Ledger.Newest(r.GroupResource()), 0)) // another value each time
	name := r.Names()[0]
	_, _ = c.Create(ctx, r, namespace, name, r.build(rng)) // fails if it exists
	change := kinds.Touch(fmt.Sprint(rng.Uint64()))
	a, err := c.write(ctx, r, request{method: http.MethodPatch, namespace: namespace, name: name, body: change})
	if err != nil {
		return 0, err
	}
	return a.Revision()
}

// DeleteNow deletes an object at once. The answer does not have the revision of the deletion, so the ledger gets none.
func (c *Cluster) DeleteNow(ctx context.Context, r Resource, namespace, name string) {
	if c.deleteNow(ctx, r.Path(namespace)+"/"+name) == nil && r.Resource == "namespaces" {
		c.finalize(ctx, name)
	}
}

// markDeleted deletes an object with its usual grace period: a pod on a node and a namespace are only marked as deleted.
func (c *Cluster) markDeleted(ctx context.Context, r Resource, namespace, name string) {
	_, _ = c.send(ctx, http.MethodDelete, r.Path(namespace)+"/"+name, object{})
}

// deleteNow deletes the object or the collection at a path, without a grace period.
func (c *Cluster) deleteNow(ctx context.Context, path string) error {
	_, err := c.send(ctx, http.MethodDelete, path, object{"gracePeriodSeconds": 0})
	return err
}

// finalize removes a namespace that is marked as deleted, as the namespace controller would.
func (c *Cluster) finalize(ctx context.Context, namespace string) {
	_, _ = c.send(ctx, http.MethodPut, "/api/v1/namespaces/"+namespace+"/finalize", object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace}, "spec": object{"finalizers": []string{}},
	})
}

// send sends a request as the admin, through the next writer. An answer other than 2xx is an error.
func (c *Cluster) send(ctx context.Context, method, path string, body object) (ask.Answer, error) {
	var payload any
	if body != nil { // a nil map in an any would be sent as null
		payload = body
	}
	writer := c.writes.Add(1) % uint64(len(c.writers))
	return c.writers[writer].Do(ctx, method, path, payload)
}
