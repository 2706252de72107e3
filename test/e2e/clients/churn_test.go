package clients

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	writers   = 4
	perSecond = 50 // writes of all writers together
	names     = 14 // in each namespace
)

// create creates an object, if it is not there.
func create(ctx context.Context, r dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	_, err := r.Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// churn writes until ctx ends, and counts what was done. What fails, fails: another writer was
// faster. A write that has begun is waited for: one that is given up may still be done, after churn
// has ended.
func churn(ctx context.Context, done *atomic.Int64) {
	var all sync.WaitGroup
	for i := range writers {
		rng := rand.New(rand.NewPCG(*seed, uint64(i)))
		all.Go(func() {
			for range poll.Ticks(ctx, writers*time.Second/perSecond) {
				if write(context.WithoutCancel(ctx), rng) == nil {
					done.Add(1)
				}
			}
		})
	}
	all.Wait()
}

// write does one write.
func write(ctx context.Context, rng *rand.Rand) error {
	r := changing[rng.IntN(len(changing))]
	client := direct.Dynamic.Resource(r).Namespace(namespaces[rng.IntN(len(namespaces))])
	name := fmt.Sprintf("%c-%d", 'a'+rng.IntN(2), rng.IntN(names/2))
	now := int64(0)
	switch pick := rng.IntN(10); {
	case pick < 4:
		_, err := client.Create(ctx, object(rng, r, name), metav1.CreateOptions{})
		return err
	case pick < 6:
		return client.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	case pick < 7 && r == pods:
		patch := fmt.Sprintf(`{"status":{"phase":%q}}`, []string{"Pending", "Running"}[rng.IntN(2)])
		_, err := client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		return err
	case pick < 8 && r == gadgets:
		patch := fmt.Sprintf(`{"spec":{"color":%q,"turn":%d}}`, color(rng), rng.IntN(100))
		_, err := client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{"tier":%q,"turn":"%d"}}}`, tier(rng), rng.IntN(100))
	_, err := client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func tier(rng *rand.Rand) string  { return []string{"web", "db", ""}[rng.IntN(3)] }
func color(rng *rand.Rand) string { return []string{"red", "blue", ""}[rng.IntN(3)] }

// object makes up an object.
func object(rng *rand.Rand, r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.GroupVersion().String(),
		"metadata":   map[string]any{"name": name, "labels": map[string]any{"tier": tier(rng)}},
	}}
	switch r {
	case pods:
		o.SetKind("Pod")
		spec := map[string]any{"containers": []any{map[string]any{"name": "main", "image": "registry.test/app:1"}}}
		if rng.IntN(3) > 0 {
			spec["nodeName"] = fmt.Sprintf("node-%d", rng.IntN(2))
		}
		o.Object["spec"] = spec
	case configMaps:
		o.SetKind("ConfigMap")
		o.Object["data"] = map[string]any{"text": "<&>\u2028", "turn": fmt.Sprint(rng.IntN(100))}
	case gadgets:
		o.SetKind("Gadget")
		o.Object["spec"] = map[string]any{"color": color(rng), "turn": int64(rng.IntN(100))}
	}
	return o
}
