package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

// writers is how many objects are written at a time.
const writers = 8

const (
	pods      = "/api/v1/pods"
	podsPer   = 30 // pods on a node
	pollPause = 100 * time.Millisecond
)

func podsIn(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// prepare creates what objects need to be created: namespaces, and the definition of the custom
// resource, which it waits for. It does so before listproxy starts, which lets resources rest
// whose definition is new.
func prepare(ctx context.Context, cp *controlplane.ControlPlane) error {
	admin, err := newClient(cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return err
	}
	for _, name := range workload.Namespaces() {
		if _, err := admin.post(ctx, "/api/v1/namespaces", kinds.Namespace(name)); err != nil {
			return err
		}
	}
	if _, err := admin.post(ctx, kinds.Definitions, databaseDefinition()); err != nil {
		return err
	}
	for {
		a, err := admin.Get(ctx, databases)
		if err != nil || a.Code == http.StatusOK {
			return err
		}
		if !poll.Pause(ctx, pollPause) {
			return ctx.Err()
		}
	}
}

// load writes pods and custom resources straight to kube-apiserver: listproxy has to hear of
// them from there.
func (s *scene) load(ctx context.Context, count int) error {
	admin := s.admin.direct
	maker := workload.Pods{Nodes: count/podsPer + 1}
	err := s.each(ctx, "loading pods", count, func(ctx context.Context, i int) error {
		return createPod(ctx, admin, maker, i)
	})
	if err != nil {
		return err
	}
	return s.each(ctx, "loading custom resources", databaseCount, func(ctx context.Context, i int) error {
		path := "/apis/" + databaseGroup + "/v1/namespaces/" + workload.NamespaceOf(i) + "/databases"
		_, err := admin.post(ctx, path, database(i))
		return err
	})
}

// createPod creates the i-th pod, and reports it running as a kubelet would.
func createPod(ctx context.Context, c client, maker workload.Pods, i int) error {
	namespace := workload.NamespaceOf(i)
	created, err := c.post(ctx, podsIn(namespace), maker.Pod(i, namespace))
	if err != nil {
		return err
	}
	var pod corev1.Pod
	if err := json.Unmarshal(created.Body, &pod); err != nil {
		return fmt.Errorf("decode a pod: %w", err)
	}
	pod.Status = maker.Running(i, &pod)
	_, err = c.Do(ctx, http.MethodPut, podsIn(namespace)+"/"+pod.Name+"/status", pod)
	return err
}

// rewrite changes every twentieth pod and deletes every hundredth, straight at kube-apiserver.
// It returns how many it wrote.
func (s *scene) rewrite(ctx context.Context, all []metav1.ObjectMeta) error {
	var some []metav1.ObjectMeta
	for i, pod := range all {
		if i%20 == 0 {
			some = append(some, pod)
		}
	}
	patch := object{"metadata": object{"annotations": object{"demo.example.com/changed": "true"}}}
	return s.each(ctx, "changing and deleting pods", len(some), func(ctx context.Context, i int) error {
		path := podsIn(some[i].Namespace) + "/" + some[i].Name
		if i%5 == 0 {
			now := object{"gracePeriodSeconds": 0}
			_, err := s.admin.direct.Do(ctx, http.MethodDelete, path, now)
			return err
		}
		_, err := s.admin.direct.Do(ctx, http.MethodPatch, path, patch)
		return err
	})
}

// each calls do for 0 to n-1, several at a time, and shows how far it has come.
func (s *scene) each(ctx context.Context, what string, n int, do func(context.Context, int) error) error {
	b := newBar(s.out, what, n, nil)
	defer b.finish()
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := 0; i < n && working.Err() == nil; i++ {
		group.Go(func() error {
			if err := do(working, i); err != nil {
				return err
			}
			b.step()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}
