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

// write sends one object and notes the revision.
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

// metadataNamed gives metadata a name, and a label where there is none.
func metadataNamed(metadata any, name string) object {
	all, _ := metadata.(object)
	if all = maps.Clone(all); all == nil {
		all = object{"labels": object{"tier": "web"}}
	}
	if set, ok := all["labels"].(object); ok {
		set = maps.Clone(set)
		maps.DeleteFunc(set, func(_ string, value any) bool { return value == nil }) // only a patch takes away
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
	_, _ = c.write(ctx, r, http.MethodPost, namespace, name, "", r.build(rng)) // if it is not there
	a, err := c.write(ctx, r, http.MethodPatch, namespace, name, "", kinds.Touch(fmt.Sprint(rng.Uint64())))
	if err != nil {
		return 0, err
	}
	return a.Revision()
}

// Delete deletes an object; at once, or as the resource has it (pods that are bound to a node and
// namespaces are only marked).
func (c *Cluster) Delete(ctx context.Context, r Resource, namespace, name string, now bool) {
	options := object{}
	if now {
		options["gracePeriodSeconds"] = 0
	}
	// The answer does not tell the deletion's revision: it has the object as it was, if any.
	_, err := c.send(ctx, http.MethodDelete, r.Path(namespace)+"/"+name, options)
	if err == nil && r.Resource == "namespaces" && now {
		c.finalize(ctx, name)
	}
}

// finalize lets a namespace go that is being deleted: there is no controller that would empty it
// and do so.
func (c *Cluster) finalize(ctx context.Context, namespace string) {
	_, _ = c.send(ctx, http.MethodPut, "/api/v1/namespaces/"+namespace+"/finalize", object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace}, "spec": object{"finalizers": []string{}},
	})
}

// send sends a request as the admin, through the next door. Any answer but 2xx is an error, too.
func (c *Cluster) send(ctx context.Context, method, path string, body object) (ask.Answer, error) {
	var payload any
	if body != nil {
		payload = body
	}
	door := c.turn.Add(1) % uint64(len(c.writers))
	return c.writers[door].Do(ctx, method, path, payload)
}
