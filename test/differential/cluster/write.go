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

// write sends one object and adds the revision to the ledger.
func (c *Cluster) write(ctx context.Context, r Resource, method, namespace, name, subresource string, body object) (ask.Answer, error) {
	path := r.Path(namespace)
	body = maps.Clone(body)
	if method != http.MethodPatch {
		body["apiVersion"], body["kind"] = r.GroupVersion().String(), r.Kind
		body["metadata"] = metadataNamed(body["metadata"], name)
	}
	if subresource == binding {
		method, body["apiVersion"], body["kind"], body["metadata"] = http.MethodPost, "v1", "Binding", object{"name": name}
	}
	if method != http.MethodPost || subresource != "" {
		path += "/" + name
	}
	if subresource != "" {
		path += "/" + subresource
	}
	a, err := c.send(ctx, method, path, body)
	if err == nil {
		revision, _ := a.Revision()
		c.Ledger.Confirmed(r.GroupResource(), revision)
	}
	return a, err
}

// metadataNamed returns metadata with a name, and with a label if metadata is nil.
func metadataNamed(metadata any, name string) object {
	all, _ := metadata.(object)
	all = maps.Clone(all)
	if all == nil {
		all = object{"labels": object{"tier": "web"}}
	}
	if set, ok := all["labels"].(object); ok {
		set = maps.Clone(set)
		maps.DeleteFunc(set, func(_ string, value any) bool { return value == nil }) // only a patch may have a nil, which deletes the label
		all["labels"] = set
	}
	all["name"] = name
	return all
}

// Create creates an object and returns the revision of the write.
func (c *Cluster) Create(ctx context.Context, r Resource, namespace, name string, body object) (uint64, error) {
	a, err := c.write(ctx, r, http.MethodPost, namespace, name, "", body)
	if err != nil {
		return 0, err
	}
	return a.Revision()
}

// Touch changes an object of a resource and returns the revision of the write.
func (c *Cluster) Touch(ctx context.Context, r Resource) (uint64, error) {
	namespace := ""
	if r.Namespaced {
		namespace = c.Namespaces[0]
	}
	rng := rand.New(rand.NewPCG(c.Ledger.Newest(r.GroupResource()), 0))
	name := r.Names()[0]
	_, _ = c.write(ctx, r, http.MethodPost, namespace, name, "", r.build(rng)) // fails if it exists
	a, err := c.write(ctx, r, http.MethodPatch, namespace, name, "", kinds.Touch(fmt.Sprint(rng.Uint64())))
	if err != nil {
		return 0, err
	}
	return a.Revision()
}

// Delete deletes an object. Unless now, a pod on a node and a namespace are only marked as deleted.
func (c *Cluster) Delete(ctx context.Context, r Resource, namespace, name string, now bool) {
	options := object{}
	if now {
		options["gracePeriodSeconds"] = 0
	}
	// The answer does not have the revision of the deletion, so the ledger gets none.
	_, err := c.send(ctx, http.MethodDelete, r.Path(namespace)+"/"+name, options)
	if err == nil && r.Resource == "namespaces" && now {
		c.finalize(ctx, name)
	}
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
	if body != nil {
		payload = body
	}
	writer := c.writes.Add(1) % uint64(len(c.writers))
	return c.writers[writer].Do(ctx, method, path, payload)
}
