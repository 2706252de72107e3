package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	podsPerNode = 30
	// patience ends a wait for something that must come, and pollInterval is the time between two looks.
	patience     = 2 * time.Minute
	pollInterval = 100 * time.Millisecond
	// idleTime is the time for which CPU is measured while nobody asks.
	idleTime = 3 * time.Second
	// writesPerSecond is the rate of each of the writers that [bench.startWrites] starts.
	writesPerSecond = 47
)

// bench runs a control plane and processes of listproxy, and measures them.
type bench struct {
	settings settings
	out      io.Writer // for tables
	log      func(format string, args ...any)

	connections map[string]*http.Client // those of bench.connection

	cp      *controlplane.ControlPlane
	binary  string // the program of listproxy, built as it is shipped
	running []*harness.Proxy
	kube    kubernetes.Interface // directly at kube-apiserver
	store   *workload.Store      // etcd, past kube-apiserver

	changedPods  []*corev1.Pod // all pods, once changeHundredth has been called
	changeRounds int           // calls of changeHundredth
	// writesCompared means that objects in compared answers are being written, so that answers of two sides may differ.
	writesCompared bool
}

// open starts a control plane. The bench must be closed, also after an error.
func (b *bench) open(ctx context.Context) (err error) {
	if b.binary, err = harness.BuildPlainProxy(); err != nil {
		return err
	}
	if b.cp, err = controlplane.Start(ctx, controlplane.Options{Log: func(line string) { b.log("%s", line) }}); err != nil {
		return err
	}
	// listproxy's files go into the control plane's directory, which is removed however this process ends.
	if err := os.Setenv("TMPDIR", b.cp.Dir()); err != nil {
		return err
	}
	b.store = workload.NewStore(b.cp)
	b.kube, err = kubernetes.NewForConfig(b.cp.RESTConfig(controlplane.Admin))
	return err
}

func (b *bench) close() (err error) {
	for _, p := range b.running {
		err = errors.Join(err, p.Stop())
	}
	if b.cp != nil {
		b.cp.Stop()
	}
	return err
}

// podShape makes the pods of the measurements.
func (b *bench) podShape() workload.Pods {
	return workload.Pods{Nodes: b.settings.pods/podsPerNode + 1}
}

// fillPods writes the pods, and the config map that [bench.startWrites] changes.
func (b *bench) fillPods(ctx context.Context) error {
	begun := time.Now()
	err := workload.Fill(ctx, b.cp, b.podShape(), b.settings.pods)
	b.log("%d pods written in %v", b.settings.pods, time.Since(begun).Round(100*time.Millisecond))
	if err != nil {
		return err
	}
	return workload.FillConfigMaps(ctx, b.cp, configMapsNamespace(0), 1, configMapBytes)
}

// start starts a program of listproxy, or the limit, before an upstream.
func (b *bench) start(ctx context.Context, program string, upstream *rest.Config, args ...string) (*harness.Proxy, error) {
	p, err := harness.StartProxy(ctx, harness.ProxyOptions{
		Upstream: upstream, Binary: program, Args: slices.Concat([]string{"--log-level", "info"}, args, b.settings.args),
	})
	if err == nil {
		b.running = append(b.running, p)
	}
	return p, err
}

// stopLast stops the process that was started last.
func (b *bench) stopLast() error {
	last := len(b.running) - 1
	p := b.running[last]
	b.running = b.running[:last]
	return p.Stop()
}

// side is a server to which the same requests go.
type side struct {
	name  string
	proxy *harness.Proxy // nil: kube-apiserver itself
}

// direct is kube-apiserver itself.
var direct = side{name: "kube-apiserver"}

// startSide starts a listproxy as it is shipped.
func (b *bench) startSide(ctx context.Context, name string, args ...string) (side, error) {
	return b.startProgram(ctx, program{path: b.binary}, name, args...)
}

// startProgram starts a program of listproxy.
func (b *bench) startProgram(ctx context.Context, build program, name string, args ...string) (side, error) {
	p, err := b.start(ctx, build.path, b.cp.RESTConfig(controlplane.Feed), args...)
	return side{name: name + build.suffix, proxy: p}, err
}

// program is a build of listproxy; suffix tells its sides from those of another build.
type program struct{ path, suffix string }

// programs returns listproxy and, if --before names one, that of another commit.
func (b *bench) programs() []program {
	all := []program{{path: b.binary}}
	if b.settings.otherProgram != "" {
		all = append(all, program{path: b.settings.otherProgram, suffix: beforeSuffix})
	}
	return all
}

// startSides starts each of the programs.
func (b *bench) startSides(ctx context.Context, name string, args ...string) (sides []side, err error) {
	for _, build := range b.programs() {
		started, err := b.startProgram(ctx, build, name, args...)
		if err != nil {
			return nil, err
		}
		sides = append(sides, started)
	}
	return sides, nil
}

// config returns the configuration of a user's client, or of the admin's for "".
func (b *bench) config(at side, user string) *rest.Config {
	cfg := b.cp.RESTConfig(cmp.Or(user, controlplane.Admin))
	if at.proxy != nil {
		return at.proxy.RESTConfig(cfg)
	}
	return cfg
}

// pids returns the processes that a request costs CPU: kube-apiserver's, and the side's proxy if it has one.
func (b *bench) pids(at side) ([]int, error) {
	kube, err := b.cp.First.PID()
	if err != nil || at.proxy == nil {
		return []int{kube}, err
	}
	return []int{kube, at.proxy.PID()}, nil
}

// cpu is what kube-apiserver and the proxy of a side use: times, or shares of one CPU.
type cpu[T time.Duration | float64] struct{ kube, proxy T }

// notIdle makes measureCPU subtract nothing.
var notIdle cpu[float64]

// usedCPU returns the CPU time that the processes of a side use while do runs, and the time that do takes.
func (b *bench) usedCPU(at side, do func() error) (used cpu[time.Duration], took time.Duration, err error) {
	pids, err := b.pids(at)
	if err != nil {
		return used, 0, err
	}
	begun := time.Now()
	byProcess, err := process.Used(do, pids...)
	if err != nil {
		return used, 0, err
	}
	used.kube = byProcess[0]
	if len(byProcess) > 1 {
		used.proxy = byProcess[1]
	}
	return used, time.Since(begun), nil
}

// measureCPU adds to r the CPU time that the processes of a side use while do runs, without the shares that they use when idle.
func (b *bench) measureCPU(at side, idle cpu[float64], r *result, do func() error) error {
	used, took, err := b.usedCPU(at, do)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", r.request, at.name, err)
	}
	r.kubeCPU += used.kube - time.Duration(idle.kube*float64(took))
	r.proxyCPU += used.proxy - time.Duration(idle.proxy*float64(took))
	return nil
}

// idleShares returns the shares of a CPU that kube-apiserver and the proxy of a side use while nobody asks.
func (b *bench) idleShares(ctx context.Context, at side) (cpu[float64], error) {
	used, took, err := b.usedCPU(at, func() error {
		clock.Sleep(ctx, idleTime)
		return ctx.Err()
	})
	if err != nil {
		return cpu[float64]{}, fmt.Errorf("%s, idle: %w", at.name, err)
	}
	return cpu[float64]{kube: used.kube.Seconds() / took.Seconds(), proxy: used.proxy.Seconds() / took.Seconds()}, nil
}

// residentMemory returns the resident bytes of kube-apiserver, and of the side's proxy if it has one.
func (b *bench) residentMemory(at side) (kube, proxy int64, err error) {
	pids, err := b.pids(at)
	if err != nil {
		return 0, 0, err
	}
	if kube, _, err = process.Memory(pids[0]); err == nil && len(pids) > 1 {
		proxy, _, err = process.Memory(pids[1])
	}
	return kube, proxy, err
}
