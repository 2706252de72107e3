package main

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
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

// prepare creates the definition of the custom resource, and waits for it. It does so before
// listproxy starts, which lets resources rest whose definition is new.
func prepare(ctx context.Context, cp *controlplane.ControlPlane) error {
	admin, err := newClient(cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return err
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

// load writes pods and custom resources past listproxy, which has to hear of them from
// kube-apiserver. Most pods are copies put into etcd, which is faster.
func (s *scene) load(ctx context.Context, count int) error {
	admin := s.admin.direct
	b := newBar(s.out, "loading pods", count, nil)
	err := workload.Fill(ctx, s.cp, workload.Pods{Nodes: count/podsPer + 1}, count, func(n int) { b.done.Store(int64(n)) })
	b.finish()
	if err != nil {
		return err
	}
	return s.each(ctx, "loading custom resources", databaseCount, func(ctx context.Context, i int) error {
		path := "/apis/" + databaseGroup + "/v1/namespaces/" + workload.NamespaceOf(i) + "/databases"
		_, err := admin.post(ctx, path, database(i))
		return err
	})
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
