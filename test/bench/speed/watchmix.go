package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/bench/speed/report"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/workload"
)

// mix measures what the servers compute for clients of all sorts: those that are told of changes,
// those that start, and those that ask again and again.
func (s *watchScene) mix(ctx context.Context, set settings) (*report.Table, error) {
	jobs, err := s.mixJobs(ctx, set)
	if err != nil {
		return nil, err
	}
	sides := s.sides()
	sides[1].name = "listproxy, both switches on"
	sides = append(slices.Insert(sides, 1, s.through("listproxy, neither", s.forwarding)), s.through("listproxy, both, `always`", s.always))
	t := &report.Table{
		Caption: fmt.Sprintf("The mix, for %d s: %d node agents, each of which watches the pods of its node, and %d informers of all pods\n"+
			"get changes. Meanwhile clients send the requests of the next table. In the last row there are no watches, and only the\n"+
			"requests that kube-apiserver must answer itself: no proxy could make the mix cost it less than that.",
			set.span, min(set.agents, mixAgents), mixInformers),
		Head: []string{"the mix", "kube-apiserver, CPU", "less", "listproxy, CPU", "both", "less", "answers", "from memory", "watches from memory"},
	}
	var straight time.Duration
	add := func(name string, took []time.Duration, done mixed, watches string) {
		answers, hits := 0, 0
		for job, n := range done.Done {
			answers += n
			hits += done.Hits[job]
		}
		straight = cmp.Or(straight, took[0])
		cells := []string{
			name, report.Millis(took[0]), report.Ratio(float64(straight), float64(took[0])), "",
			report.Millis(sum(took)), report.Ratio(float64(straight), float64(sum(took))),
			fmt.Sprint(answers), percent(hits, answers), watches,
		}
		if len(took) > 1 {
			cells[3] = report.Millis(took[1])
		}
		t.Add(cells...)
	}
	for _, side := range sides {
		path, err := s.watching(ctx, side.server, "")
		if err != nil {
			return nil, err
		}
		paths := slices.Repeat([]string{path}, mixInformers)
		for i := range min(set.agents, mixAgents) {
			paths = append(paths, path+"&fieldSelector=spec.nodeName%3D"+workload.Pods{Nodes: set.agents}.Node(i))
		}
		opened, err := s.begin(side, paths, perConnection, opensAtOnce)
		if err != nil {
			return nil, err
		}
		done, took, err := s.mixed(side, jobs, set.span)
		if err != nil {
			return nil, err
		}
		if _, err := order(s.client, watchOrder{Close: true}); err != nil {
			return nil, err
		}
		add(side.name, took, done, percent(opened.Hits, len(paths)))
		poll.Pause(ctx, settleFor)
	}
	done, took, err := s.mixed(sides[0], slices.DeleteFunc(jobs, func(j job) bool { return !j.Forwarded }), set.span)
	if err != nil {
		return nil, err
	}
	add("kube-apiserver, without what listproxy could answer", took, done, "")
	return t, nil
}

// mixed has jobs done at a side for some seconds, and returns what that takes of each process.
func (s *watchScene) mixed(side newestSide, jobs []job, seconds int) (mixed, []time.Duration, error) {
	// What a list costs is learned, and connections are there.
	learned := &mix{Seconds: 3, Jobs: slices.Clone(jobs)}
	for i := range learned.Jobs {
		learned.Jobs[i].Times = max(mixClients, learned.Jobs[i].Times*3/seconds)
	}
	var done watchOutcome
	do := func(m *mix) (err error) {
		if done, err = order(s.client, watchOrder{Mix: m, Server: side.server}); err != nil {
			err = fmt.Errorf("%s: %w", side.name, err)
		}
		return err
	}
	if err := do(learned); err != nil {
		return mixed{}, nil, err
	}
	took, err := process.Used(func() error { return do(&mix{Seconds: seconds, Jobs: jobs}) }, side.pids...)
	return done.Mixed, took, err
}

const (
	mixAgents    = 500
	mixInformers = 20
)

// What nodes and what runs on them ask for in a second, each: measured on a cluster of 25,000
// (simulated) nodes where nothing happened, which had 2,965 PUTs, 1,462 PATCHes, 172 GETs, 7.5 LISTs
// and 6 WATCHes a second (https://github.com/NVIDIA/NVSentinel/issues/1705). Nearly all PUTs renew
// nodes' Leases, which kubelets do every ten seconds
// (https://kubernetes.io/docs/concepts/architecture/leases/). Where nothing happens, PATCHes are
// nodes' reports of their status: KWOK's nodes send one every 20 to 25 s. Pods are written as often
// as Kubernetes is made for at most: 20 of a cluster of 5,000 nodes are created, changed or deleted a
// second (https://github.com/kubernetes/community/blob/master/sig-scalability/slos/slos.md), each
// with about four writes. Together these are as many PATCHes as were measured.
const (
	renewalsOfNode = 0.12
	reportsOfNode  = 0.042
	patchesOfNode  = 0.016
	getsOfNode     = 0.007
)

// mixJobs are the sorts of requests. How many lists there are does not go by the nodes but by what
// runs in a cluster, and nothing is published that could be scaled: here there are about as many as
// in the cluster above, with 5,000 pods to list. [watchScene.costs] says what each sort costs, so
// that others can count their own mix.
//
// Lists are asked for with gzip, as Go clients do unless they are told not to; of Kubernetes' own
// components only kube-scheduler and kube-controller-manager are. Pollers are taken for other
// programs, which do not ask for it, and watches have none before 1.37.
func (s *watchScene) mixJobs(ctx context.Context, set settings) ([]job, error) {
	const namespaced = "/api/v1/namespaces/" + controlplane.TeamA + "/pods"
	pods, err := s.some(ctx, controlplane.TeamA, 200)
	if err != nil {
		return nil, err
	}
	var ofPods []string
	for _, pod := range pods {
		ofPods = append(ofPods, namespaced+"/"+pod.Name)
	}
	nodes := min(set.agents, mixAgents)
	var ofNodes []string
	for i := range nodes {
		node := workload.Pods{Nodes: set.agents}.Node(i)
		named := metav1.ObjectMeta{Name: node}
		lease := coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: new(int32(40))}
		leases := s.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: named, Spec: lease}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		_, err = s.kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: named}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		ofNodes = append(ofNodes, "/api/v1/nodes/"+node+"/status")
	}
	jobs := []job{
		{
			Name: "informers that start", PerSecond: 0.5, Accept: acceptProtobuf,
			Paths: []string{streamingList + "&resourceVersion=0"}, Stream: true,
		},
		{
			Name: "lists at resourceVersion=0", PerSecond: 2, Accept: acceptProtobuf, Gzip: true,
			Paths: []string{namespaced + "?resourceVersion=0"},
		},
		{Name: "polls of the newest state of a namespace", PerSecond: 5, Accept: acceptJSON, Paths: []string{namespaced}},
		{
			Name: "walks over all pods, 500 a page", PerSecond: 0.5, Accept: acceptJSON, Gzip: true,
			Paths: []string{"/api/v1/pods?limit=500"}, Walk: true,
		},
		{
			Name: "lists by label", PerSecond: 2, Accept: acceptJSON, Gzip: true,
			Paths: []string{"/api/v1/pods?labelSelector=" + workload.HundredthLabel + "%3D7"},
		},
		{
			Name: "tables", PerSecond: 0.5, Accept: acceptJSON + ";as=Table;v=v1;g=meta.k8s.io," + acceptJSON, Gzip: true,
			Paths: []string{namespaced + "?limit=500"}, Forwarded: true,
		},
		{Name: "GETs", PerSecond: getsOfNode * float64(nodes), Accept: acceptProtobuf, Paths: ofPods, Forwarded: true},
		{
			Name: "changes of pods", PerSecond: patchesOfNode * float64(nodes), Accept: acceptProtobuf, Paths: ofPods,
			Patch: true, Forwarded: true,
		},
		{
			Name: "reports of nodes' status", PerSecond: reportsOfNode * float64(nodes), Accept: acceptProtobuf, Paths: ofNodes,
			Report: true, Forwarded: true,
		},
		{Name: "renewals of Leases", PerSecond: renewalsOfNode * float64(nodes), Renew: true, Forwarded: true},
	}
	for i, j := range jobs {
		jobs[i].Times = max(1, int(j.PerSecond*float64(set.span)))
	}
	return jobs, nil
}

// costs measures what one request of each sort of the mix costs the servers, where nothing else is
// asked for: of some, listproxy can take nothing away.
func (s *watchScene) costs(ctx context.Context, set settings) (*report.Table, error) {
	jobs, err := s.mixJobs(ctx, set)
	if err != nil {
		return nil, err
	}
	t := &report.Table{
		Caption: "The requests of the mix: how many of each sort are sent in a second, what one costs while nothing changes and nobody\n" +
			"watches, and which part of the CPU that kube-apiserver uses for all of them goes into this sort. A walk counts as one\n" +
			"request. Sending a change to watchers costs more; that is not included.",
		Head: []string{
			"a request", "a second", "kube-apiserver, CPU", "of the mix's requests", "through listproxy: kube-apiserver", "listproxy", "from memory",
		},
	}
	type cost struct{ straight, kube, proxy time.Duration }
	costs := make([]cost, len(jobs))
	hits := make([]string, len(jobs))
	var all float64
	for i, j := range jobs {
		for _, side := range s.sides() {
			done, took, err := s.only(side, j)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", side.name, j.Name, err)
			}
			if len(took) == 1 {
				costs[i].straight = took[0]
				continue
			}
			costs[i].kube, costs[i].proxy, hits[i] = took[0], took[1], percent(done.Hits[j.Name], done.Done[j.Name])
		}
		all += j.PerSecond * costs[i].straight.Seconds()
	}
	for i, j := range jobs {
		part := strconv.Itoa(int(100*j.PerSecond*costs[i].straight.Seconds()/all+0.5)) + "%"
		perSecond := fmt.Sprintf("%.3g", float64(j.Times)/float64(set.span))
		t.Add(j.Name, perSecond, report.Millis(costs[i].straight), part, report.Millis(costs[i].kube), report.Millis(costs[i].proxy), hits[i])
	}
	return t, nil
}

// only asks a side for one sort of the mix's requests, and returns what one of them takes of each
// process.
func (s *watchScene) only(side newestSide, j job) (mixed, []time.Duration, error) {
	var done watchOutcome
	ask := func(times int) (err error) {
		j.Times = times
		done, err = order(s.client, watchOrder{Mix: &mix{Jobs: []job{j}}, Server: side.server})
		return err
	}
	if err := ask(mixClients); err != nil { // what a list costs is learned
		return mixed{}, nil, err
	}
	times := 100
	switch {
	case j.Stream, j.Walk:
		times = 12
	case j.Renew:
		times = 1000 // before which all Leases are listed
	}
	took, err := process.Used(func() error { return ask(times) }, side.pids...)
	for i := range took {
		took[i] /= time.Duration(times)
	}
	return done.Mixed, took, err
}
