package main

import (
	"context"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

// readPods returns up to n pods of a namespace, to be written into etcd again.
func (b *bench) readPods(ctx context.Context, namespace string, n int) ([]*corev1.Pod, error) {
	list, err := b.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: int64(n)})
	if err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		list.Items[i].ResourceVersion = "" // etcd stores none
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// changingPods is the number of pods that change while something is measured.
const changingPods = 10

// unlimited is a count for [bench.changePods] that it never reaches, so that it makes changes until ctx ends.
const unlimited = -1

// changePods changes pods one after the other and over again, perSecond of them in a second, until ctx ends or count changes
// are made. It returns the number of changes. It writes directly into etcd, so that writing costs kube-apiserver nothing.
func (b *bench) changePods(ctx context.Context, pods []*corev1.Pod, perSecond, count int) (made int, err error) {
	for i := range poll.Ticks(ctx, time.Second/time.Duration(perSecond)) {
		changed := pods[i%len(pods)].DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "bench.listproxy.io/at", formatStamp(time.Now()))
		err := b.store.Put(ctx, changed)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return made, err
		}
		made++
		if made == count {
			break
		}
	}
	return made, nil
}

// changeHundredth changes every hundredth pod, and waits until a side has the changes. The first call changes pods 1, 101, 201
// …, and the next call pods 2, 102, 202 ….
func (b *bench) changeHundredth(ctx context.Context, target side, accept string) error {
	const (
		step       = 100
		perSecond  = 1000
		settleTime = 300 * time.Millisecond // listproxy applies the changes to its other representations, which costs CPU, too
	)
	if b.changedPods == nil {
		var err error
		if b.changedPods, err = b.readPods(ctx, "", b.settings.pods); err != nil {
			return err
		}
	}
	b.changeRounds++
	var chosen []*corev1.Pod
	for i := b.changeRounds % step; i < len(b.changedPods); i += step {
		chosen = append(chosen, b.changedPods[i])
	}
	if _, err := b.changePods(ctx, chosen, perSecond, len(chosen)); err != nil {
		return err
	}
	// listproxy answers this request once it has the changes, in the representation of the request.
	newest, err := b.resolve(ctx, request{path: podsWith + "limit=1&resourceVersion=" + newestRevision, accept: accept})
	if err != nil {
		return err
	}
	clock.Sleep(ctx, settleTime)
	return b.send(ctx, target, newest, once, &row{})
}

// writing says which objects [bench.startWrites] writes.
type writing int

const (
	// quiet writes the Namespace default, which no compared answer contains.
	quiet writing = iota
	// busy also writes some of the pods, and the config map in changingNamespace.
	busy
)

// startWrites starts a writer for the Namespace default. If what is busy, it also starts a writer for the config map, and one
// for ten pods. Each writer makes writesPerSecond (47) writes a second until stop is called.
func (b *bench) startWrites(ctx context.Context, what writing) (stop func() error, err error) {
	var pods []*corev1.Pod
	if what == busy {
		if pods, err = b.readPods(ctx, controlplane.TeamA, changingPods); err != nil {
			return nil, err
		}
	}
	b.writesCompared = what == busy
	ctx, cancel := context.WithCancel(ctx)
	writers, ctx := errgroup.WithContext(ctx)
	startPatching := func(send func(patch []byte) error) {
		writers.Go(func() error {
			for i := range poll.Ticks(ctx, time.Second/writesPerSecond) {
				patch := []byte(`{"metadata":{"annotations":{"bench.listproxy.io/n":"` + strconv.Itoa(i) + `"}}}`)
				if err := send(patch); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	startPatching(func(patch []byte) error {
		_, err := b.kube.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceDefault, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if what == busy {
		configMaps := b.kube.CoreV1().ConfigMaps(changingNamespace)
		startPatching(func(patch []byte) error {
			_, err := configMaps.Patch(ctx, workload.ConfigMapName(0), types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
		writers.Go(func() error {
			_, err := b.changePods(ctx, pods, writesPerSecond, unlimited)
			return err
		})
	}
	return func() error {
		cancel()
		b.writesCompared = false
		return writers.Wait()
	}, nil
}
