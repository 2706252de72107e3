package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// write sends one object and notes the revision. It returns the status code, or 0.
func (c *Cluster) write(ctx context.Context, r Resource, method, namespace, name, subresource string, body object) int {
	code, _, _ := c.writeAt(ctx, r, method, namespace, name, subresource, body)
	return code
}

// writeAt is write for who wants to know the revision.
func (c *Cluster) writeAt(ctx context.Context, r Resource, method, namespace, name, subresource string, body object) (code int, revision uint64, err error) {
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
	code, revision, err = c.send(ctx, method, path, body)
	if err == nil && code/100 == 2 {
		c.Ledger.Confirmed(r.GroupResource(), revision)
	}
	return code, revision, err
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
	code, revision, err := c.writeAt(ctx, r, http.MethodPost, namespace, name, "", body)
	if err != nil || code != http.StatusCreated {
		return 0, fmt.Errorf("creating %s %s/%s: %d, %w", r.Resource, namespace, name, code, err)
	}
	return revision, nil
}

// Touch changes an object of a resource and returns the revision of the write.
func (c *Cluster) Touch(ctx context.Context, r Resource) (uint64, error) {
	if r.Reader {
		for _, w := range c.writable() {
			if w.GroupResource() == r.GroupResource() {
				r = w
			}
		}
	}
	namespace := ""
	if r.Namespaced {
		namespace = c.Namespaces[0]
	}
	rng := rand.New(rand.NewPCG(c.Ledger.Newest(r.GroupResource()), 0))
	name := r.Names()[0]
	c.write(ctx, r, http.MethodPost, namespace, name, "", r.build(rng)) // if it is not there
	code, revision, err := c.writeAt(ctx, r, http.MethodPatch, namespace, name, "", object{
		"metadata": object{"annotations": object{"touched": fmt.Sprint(rng.Uint64())}},
	})
	if err != nil || code != http.StatusOK {
		return 0, fmt.Errorf("touching %s %s/%s: %d, %w", r.Resource, namespace, name, code, err)
	}
	return revision, nil
}

// Delete deletes an object; at once, or as the resource has it (pods that are bound to a node and
// namespaces are only marked).
func (c *Cluster) Delete(ctx context.Context, r Resource, namespace, name string, now bool) {
	options := object{}
	if now {
		options["gracePeriodSeconds"] = 0
	}
	path := r.Path(namespace) + "/" + name
	// The answer does not tell the deletion's revision: it has the object as it was, if any.
	code, _, err := c.send(ctx, http.MethodDelete, path, options)
	if err != nil || code/100 != 2 {
		return
	}
	if r.Resource == "namespaces" && now {
		c.finalize(ctx, name)
	}
}

// finalize lets a namespace go that is being deleted: there is no controller that would empty it
// and do so.
func (c *Cluster) finalize(ctx context.Context, namespace string) {
	_, _, _ = c.send(ctx, http.MethodPut, "/api/v1/namespaces/"+namespace+"/finalize", object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace}, "spec": object{"finalizers": []string{}},
	})
}

// Remove deletes an object at once, and tries until the API server says that it is not there.
func (c *Cluster) Remove(ctx context.Context, r Resource, namespace, name string) error {
	for {
		code, _, err := c.send(ctx, http.MethodDelete, r.Path(namespace)+"/"+name, object{"gracePeriodSeconds": 0})
		if err == nil && (code == http.StatusOK || code == http.StatusNotFound) {
			return nil
		}
		if !poll.Pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("deleting %s %s/%s: %d, %w", r.Resource, namespace, name, code, errors.Join(err, ctx.Err()))
		}
	}
}

// deleteCollection deletes many objects in one request.
func (c *Cluster) deleteCollection(ctx context.Context, r Resource, namespace string) {
	_, _, _ = c.send(ctx, http.MethodDelete, r.Path(namespace)+"?labelSelector=turn%3D3", object{"gracePeriodSeconds": 0})
}

// send sends a request as the admin, through the next door, and returns the status code and the revision in the answer.
func (c *Cluster) send(ctx context.Context, method, path string, body object) (code int, revision uint64, err error) {
	var payload any
	if body != nil {
		payload = body
	}
	door := c.turn.Add(1) % uint64(len(c.writers))
	a, err := c.writers[door].Send(ctx, method, path, payload)
	if err != nil {
		return 0, 0, err
	}
	revision, _ = a.Revision()
	return a.Code, revision, nil
}
