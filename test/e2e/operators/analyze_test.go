package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/cmd/listproxy/analyze"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

const (
	// lastPath is what clients ask for last, repeats times: when the log has it, it has all.
	lastPath = "/api/v1/events"
	repeats  = 3
)

// TestForecast: what listproxy analyze says of the log that kube-apiserver wrote of real clients is
// what listproxy then does when the same clients ask it, of lists and of watches. The two may differ in
// what passes by itself: the first ones of a caller and of a resource, and reviews that take too long.
// It runs alone: what others ask would be in the log, too.
func TestForecast(t *testing.T) {
	configMaps := kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Plural: "configmaps"}
	for _, name := range []string{"f-one", "f-two", "f-three"} {
		expect.NoError(t, direct.Ensure(t.Context(), configMaps.Path(controlplane.TeamB), configMaps.Object(name)))
	}
	own := cp.RESTConfig(controlplane.Admin)
	dir := t.TempDir()

	before, err := os.ReadFile(upstreamLog)
	expect.NoError(t, err)
	clients(t, own, cp.KubeconfigPath(controlplane.Admin))
	var log []byte
	poll.Until(t, patience, "the last lists in kube-apiserver's log", func() bool {
		log, err = os.ReadFile(upstreamLog)
		return err == nil && bytes.Count(log[len(before):], []byte(`"requestURI":"`+lastPath+`"`)) == repeats
	})
	audit := filepath.Join(dir, "audit.log")
	expect.NoError(t, os.WriteFile(audit, log[len(before):], 0o600))

	forecast := analyzed(t, audit)
	t.Logf("forecast: %+v", forecast.Totals)
	lists, watches := forecast.Totals.Lists, forecast.Totals.Watches
	if lists.FromMemory == 0 || lists.WithConsistentLists == 0 || lists.Forwarded == 0 || watches.WithWatches == 0 || watches.Forwarded == 0 {
		t.Errorf("not everything was asked: %+v", forecast.Totals)
	}

	p := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed),
		Args:     []string{"--consistent-lists=always", "--watches"},
	})
	through := p.RESTConfig(own)
	clients(t, through, kubeconfigOf(t, p, dir))
	for verb, said := range map[string]analyze.Answers{"list": lists, "watch": watches} {
		count := func(labels map[string]string) (n int64) {
			labels["verb"] = verb
			sum, _, err := soak.Sum(t.Context(), http.DefaultClient, p.AdminURL()+"/metrics", "listproxy_requests_total", labels)
			expect.NoError(t, err)
			return int64(sum)
		}
		poll.Until(t, patience, fmt.Sprintf("%d of %q in listproxy's metrics", said.Count, verb), func() bool {
			return count(map[string]string{}) == said.Count
		})
		passing := int64(0)
		for _, why := range []reason.Reason{
			reason.UnknownCaller, reason.Warming, reason.NotProven, reason.History, reason.Stale, reason.ReviewFailed,
		} {
			passing += count(map[string]string{"reason": string(why)})
		}
		from, did := said.FromMemory+said.WithConsistentLists+said.WithWatches, count(map[string]string{"decision": "serve"})
		if from != did+passing || did == 0 {
			t.Errorf("%s: %d were to be answered from memory; %d were, and %d not yet", verb, from, did, passing)
		}
		t.Logf("%s: of %d %d were to be answered from memory, %d were, %d were the first of their kind", verb, said.Count, from, did, passing)
	}
}

// clients are programs as clusters have them. They all do the same each time.
func clients(t *testing.T, cfg *rest.Config, kubeconfig string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		expect.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	named := func(name string) *rest.Config {
		c := rest.CopyConfig(cfg)
		c.UserAgent = name + "/v1"
		return c
	}

	for _, args := range [][]string{
		{"get", "configmaps", "-A"},
		{"get", "--raw", "/api/v1/configmaps?resourceVersion=0"},
		{"get", "--raw", "/api/v1/namespaces"},
	} {
		cmd := exec.CommandContext(ctx, cp.Binaries().Kubectl, append([]string{"--kubeconfig", kubeconfig}, args...)...) // #nosec G204 -- the tests' own words
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}

	typed, err := kubernetes.NewForConfig(named("informers"))
	check(err)
	factory := informers.NewSharedInformerFactory(typed, 0)
	pods, maps := factory.Core().V1().Pods().Informer(), factory.Core().V1().ConfigMaps().Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	for !pods.HasSynced() || !maps.HasSynced() {
		select {
		case <-ctx.Done():
			t.Fatal("the informers do not begin")
		case <-time.After(10 * time.Millisecond):
		}
	}
	close(stop)
	factory.Shutdown()

	untyped, err := dynamic.NewForConfig(named("inventory"))
	check(err)
	partial, err := metadata.NewForConfig(named("collector"))
	check(err)
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	for range 5 {
		_, err = untyped.Resource(resource).List(ctx, metav1.ListOptions{})
		check(err)
		_, err = partial.Resource(resource).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		check(err)
		page, err := typed.CoreV1().ConfigMaps(controlplane.TeamB).List(ctx, metav1.ListOptions{Limit: 2})
		check(err)
		for page.Continue != "" {
			page, err = typed.CoreV1().ConfigMaps(controlplane.TeamB).List(ctx, metav1.ListOptions{Limit: 2, Continue: page.Continue})
			check(err)
		}
		_, err = typed.CoreV1().Secrets("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		check(err)
	}

	raw, err := ask.New(named("script"), patience)
	check(err)
	for range repeats {
		list, err := untyped.Resource(resource).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		check(err)
		check(watchAll(ctx, raw, list.GetResourceVersion(), typed.CoreV1().ConfigMaps(controlplane.TeamB).Watch,
			untyped.Resource(resource).Watch, partial.Resource(resource).Watch, typed.CoreV1().Secrets("").Watch))
	}
	for _, path := range []string{
		"/api/v1/configmaps?resourceVersion=0", "/api/v1/configmaps?resourceVersion=1&resourceVersionMatch=NotOlderThan",
		"/api/v1/configmaps?resourceVersion=0&labelSelector=" + url.QueryEscape("a in (b)"),
		"/api/v1/configmaps?resourceVersion=0&unheard=of", "/apis/apps/v1/deployments", lastPath,
	} {
		for range repeats {
			answer, err := raw.Get(ctx, path)
			check(err)
			if answer.Code != http.StatusOK {
				t.Fatalf("%s: %s", path, answer)
			}
		}
	}
}

// watchAll watches, from a revision and in other ways, all at the same time, until the server ends
// each of them.
func watchAll(ctx context.Context, raw *ask.Client, revision string, begin ...func(context.Context, metav1.ListOptions) (watch.Interface, error)) error {
	var group errgroup.Group
	for _, begin := range begin {
		group.Go(func() error {
			timeout := int64(1)
			w, err := begin(ctx, metav1.ListOptions{ResourceVersion: revision, TimeoutSeconds: &timeout, AllowWatchBookmarks: true})
			if err != nil {
				return err
			}
			for range w.ResultChan() { // it is told of nothing
			}
			return nil
		})
	}
	for _, query := range []string{"", "&resourceVersion=0", "&fieldSelector=metadata.name%3Df-one&resourceVersion=" + revision} {
		group.Go(func() error {
			answer, err := raw.Get(ctx, "/api/v1/configmaps?watch=true&timeoutSeconds=1"+query)
			if err == nil && answer.Code != http.StatusOK {
				err = fmt.Errorf("a watch: %s", answer)
			}
			return err
		})
	}
	return group.Wait()
}

// kubeconfigOf writes a kubeconfig of the admin that leads to listproxy.
func kubeconfigOf(t *testing.T, p *harness.Proxy, dir string) string {
	t.Helper()
	ca, path := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "kubeconfig")
	expect.NoError(t, os.WriteFile(ca, p.CA(), 0o600))
	out, err := exec.CommandContext(t.Context(), p.Binary(), "kubeconfig", "--kubeconfig", cp.KubeconfigPath(controlplane.Admin),
		"--server", p.URL(), "--certificate-authority", ca).Output() // #nosec G204 -- the tests' own words
	if err == nil {
		err = os.WriteFile(path, out, 0o600)
	}
	expect.NoError(t, err)
	return path
}

// analyzed is what listproxy analyze says of a log.
func analyzed(t *testing.T, log string) analyze.Report {
	t.Helper()
	program, err := harness.BuildProxy(t.Context())
	expect.NoError(t, err)
	var problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "analyze", "--output", "json", log) // #nosec G204 -- the tests' own words
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(problems.String()) != "" {
		t.Fatalf("%v: %s", err, &problems)
	}
	var report analyze.Report
	expect.NoError(t, json.Unmarshal(out, &report))
	return report
}
