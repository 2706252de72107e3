// Package cluster_test tests the chart, and clients of docs/clients.md, in a real cluster: make test-cluster.
package cluster_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/cluster"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/pages"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// team is the namespace of pods that are clients. Their account is robot.
const team = "team-pods"

// usual are the values that all installations have.
const usual = "consistentLists=true,watches=true,log.level=access,clients.inject=true,clients.namespaces={" + team + "}"

// tester is what the parts of [TestCluster] share.
type tester struct {
	*cluster.Cluster
	admin           kubernetes.Interface
	direct, through *rest.Config
}

// TestCluster goes through the life of an installation. Each part needs those before it.
func TestCluster(t *testing.T) {
	if running == nil {
		t.Skip("make test-cluster runs it")
	}
	admin, err := kubernetes.NewForConfig(running.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	c := &tester{Cluster: running, admin: admin}
	before := c.objects(t)
	for _, args := range []string{
		"create namespace " + team, "create serviceaccount robot -n " + team,
		"create clusterrolebinding robot --clusterrole=edit --serviceaccount=" + team + ":robot",
	} {
		c.kubectl(t, args)
	}
	for _, part := range []struct {
		name string
		test func(t *testing.T, c *tester)
	}{
		{"install", checkInstall},
		{"lists", checkLists},
		{"doors", checkDoors},
		{"ways", checkWays},
		{"restart", func(t *testing.T, c *tester) {
			beside(t, c.through, c.direct, func() {
				c.kubectl(t, "rollout restart deployment/listproxy -n listproxy")
				c.kubectl(t, "rollout status deployment/listproxy -n listproxy --timeout=5m")
			})
		}},
		{"upgrade", func(t *testing.T, c *tester) {
			beside(t, c.through, c.direct, func() { c.install(t, "podAnnotations.upgraded=yes") })
		}},
		{"killed", checkKilled},
		{"certificate", checkCertificate},
		{"token", checkToken},
		{"policy", func(t *testing.T, c *tester) {
			beside(t, c.through, c.direct, func() {
				c.install(t, "policy.extraResources[0].group=coordination.k8s.io,policy.extraResources[0].resource=leases,policy.extraResources[0].cache=onDemand")
			})
		}},
		{"drain", checkDrain},
		{"autoscaling", func(t *testing.T, c *tester) {
			beside(t, c.through, c.direct, func() {
				c.install(t, "autoscaling.enabled=true,autoscaling.minReplicas=3")
				poll.Until(t, patience, "three replicas are ready", func() bool {
					return c.kubectl(t, "get deployment listproxy -n listproxy -o jsonpath={.status.readyReplicas}") == "3"
				})
			})
		}},
		{"bypass", checkBypass},
		{"traces", checkTraces},
		{"uninstall", func(t *testing.T, c *tester) {
			_, err := c.Helm(t.Context(), "uninstall", "listproxy", "--wait")
			expect.NoError(t, err)
			for _, args := range []string{
				"delete namespace " + team, "delete namespace listproxy", "delete clusterrolebinding robot",
			} {
				c.kubectl(t, args)
			}
			expect.Same(t, before, c.objects(t))
		}},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, c) }) && c.through == nil {
			return
		}
	}
}

// kubectl runs kubectl as the admin.
func (c *tester) kubectl(t *testing.T, args string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "", strings.Fields(args)...)
	expect.NoError(t, err)
	return out
}

// install installs or upgrades the chart with the usual values and more.
func (c *tester) install(t *testing.T, values ...string) string {
	t.Helper()
	notes, err := c.Install(t.Context(), append([]string{usual}, values...)...)
	expect.NoError(t, err)
	return notes
}

// objects are the names of all objects of kinds that Helm can make, but for what comes and goes by itself.
func (c *tester) objects(t *testing.T) []string {
	t.Helper()
	kinds := strings.Fields(c.kubectl(t, "api-resources --verbs=list,create,delete --output=name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool {
		return strings.HasPrefix(kind, "events") || strings.HasPrefix(kind, "leases") || strings.HasPrefix(kind, "ipaddresses") || strings.HasSuffix(kind, "metrics.k8s.io")
	})
	all := strings.Fields(c.kubectl(t, "get "+strings.Join(kinds, ",")+" --all-namespaces --output=name"))
	all = slices.DeleteFunc(all, func(name string) bool { return strings.Contains(name, "/jaeger") }) // which is installed anew
	slices.Sort(all)
	return all
}

// checkInstall: from nothing to two replicas that answer, which helm test agrees with.
func checkInstall(t *testing.T, c *tester) {
	c.install(t)
	out, err := c.Helm(t.Context(), "test", "listproxy", "--logs")
	expect.NoError(t, err)
	expect.Says(t, out, "from memory", "Cache-Status: listproxy; hit; detail=any")
	c.know(t)
}

// know makes clients of the account that trust what pods of docs/clients.md do, and look for whom they look for.
func (c *tester) know(t *testing.T) {
	t.Helper()
	trusted, err := c.admin.CoreV1().ConfigMaps(team).Get(t.Context(), "listproxy-client", metav1.GetOptions{})
	expect.NoError(t, err)
	token, err := c.CreateServiceAccountToken(t.Context(), team, "robot")
	expect.NoError(t, err)
	c.direct = c.RESTConfig(controlplane.Anonymous)
	c.direct.BearerToken = token
	through := rest.CopyConfig(c.direct)
	through.Host, through.CAData, through.ServerName = "https://"+cluster.ClusterIP, []byte(trusted.Data["ca.crt"]), "kubernetes.default.svc"
	c.through = through
}

// checkLists: whatever the policy keeps is answered from memory soon, and Secrets never.
func checkLists(t *testing.T, c *tester) {
	kept, err := c.admin.CoreV1().ConfigMaps(cluster.Namespace).Get(t.Context(), "listproxy-policy", metav1.GetOptions{})
	expect.NoError(t, err)
	config, err := policy.ParseConfig("policy.yaml", []byte(kept.Data["policy.yaml"]))
	expect.NoError(t, err)
	proxied, err := c.Through(t.Context(), c.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	admin := ask.MustNew(t, proxied, patience)
	for _, target := range config.Targets() {
		path := "/apis/" + target.Group + "/v1/" + target.Resource + "?resourceVersion=0"
		switch target.Group {
		case "":
			path = strings.Replace(path, "/apis/", "/api", 1)
		case "autoscaling":
			path = strings.Replace(path, "/v1/", "/v2/", 1)
		}
		_, err := admin.AwaitMemory(t.Context(), path)
		expect.NoError(t, err)
	}
	a, err := admin.Get(t.Context(), "/api/v1/secrets?resourceVersion=0")
	expect.NoError(t, err)
	expect.Says(t, a.Source(), "detail=not-cached")
}

// checkDoors: users of client certificates are themselves, and only those who are named; and the other door, as kubectl's
// proxy-url, opens with the one CA.
func checkDoors(t *testing.T, c *tester) {
	_, err := c.admin.CoreV1().ConfigMaps(cluster.Namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "client-ca"}, Data: map[string]string{"bundle": string(c.CA())},
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	c.install(t, "connect.enabled=true,connect.hosts={kubernetes.default.svc},impersonation.users={"+controlplane.CertUser+"}",
		"clientCertificates.enabled=true,clientCertificates.caConfigMap.name=client-ca,clientCertificates.caConfigMap.key=bundle")
	mallory, key, err := c.IssueCert("mallory", "system:masters")
	expect.NoError(t, err)
	unnamed := c.CertConfig(controlplane.CertUser)
	unnamed.CertData, unnamed.KeyData = mallory, key
	for says, as := range map[string]*rest.Config{
		`User \"` + controlplane.CertUser + `\" cannot list`: c.CertConfig(controlplane.CertUser), "cannot impersonate": unnamed,
	} {
		through, err := c.Through(t.Context(), as)
		expect.NoError(t, err)
		poll.Until(t, patience, says, func() bool { // replicas of before have ended
			a, err := ask.MustNew(t, through, patience).Get(t.Context(), "/api/v1/namespaces/team-a/pods?resourceVersion=0")
			return err == nil && strings.Contains(string(a.Body), says)
		})
	}
	through, err := c.Through(t.Context(), c.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	tunnel := c.RESTConfig(controlplane.Admin)
	tunnel.Host = "https://kubernetes.default.svc"
	tunnel.CAData, tunnel.Proxy = through.CAData, http.ProxyURL(&url.URL{Scheme: "https", Host: "listproxy.listproxy.svc:8444"})
	tunnel.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, cluster.ClusterIP+":8444")
	}
	_, err = ask.MustNew(t, tunnel, patience).AwaitMemory(t.Context(), "/api/v1/pods?resourceVersion=0")
	expect.NoError(t, err)
	c.install(t)
}

// pod makes a pod of the team and returns what it has printed when it has ended.
func (c *tester) pod(t *testing.T, labels map[string]string, spec corev1.PodSpec) string {
	t.Helper()
	spec.RestartPolicy, spec.ServiceAccountName = corev1.RestartPolicyNever, "robot"
	pod, err := c.admin.CoreV1().Pods(team).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "way-", Labels: labels}, Spec: spec}, metav1.CreateOptions{})
	expect.NoError(t, err)
	poll.Until(t, patience, "the pod has ended", func() bool {
		pod, err = c.admin.CoreV1().Pods(team).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
	})
	printed := c.kubectl(t, "logs -n "+team+" "+pod.Name)
	c.kubectl(t, "delete pod -n "+team+" "+pod.Name)
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("the pod failed:\n%s", printed)
	}
	return printed
}

// documented is the pod in docs/clients.md that has some words, with kubectl as its only container: it has client-go's own
// loading, rest.InClusterConfig too, and prints the headers of what comes.
func documented(t *testing.T, words string) corev1.PodSpec {
	t.Helper()
	var pod struct{ Spec corev1.PodSpec }
	text := "spec: {containers: [{name: robot}]}"
	if words != "" {
		text = pages.Block(t, "clients.md", "spec:", words)
	}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(text), &pod))
	container := &pod.Spec.Containers[0]
	container.Image = "localhost/kubectl:1"
	container.Args = []string{"get", "--raw", "/api/v1/namespaces/" + team + "/pods?resourceVersion=0", "-v=8"}
	return pod.Spec
}

// checkWays: the pods of docs/clients.md, and those that the chart's policy changes, have lists from memory; others do not.
func checkWays(t *testing.T, c *tester) {
	ways := map[string]struct {
		words  string
		labels map[string]string
	}{
		"kubeconfig": {"KUBECONFIG", nil},
		"in-cluster": {"projected:", nil},
		"a label":    {"", map[string]string{"listproxy.io/client": "true"}},
	}
	hit := func(words string, labels map[string]string) bool {
		return strings.Contains(c.pod(t, labels, documented(t, words)), "Cache-Status: listproxy; hit")
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			poll.Until(t, patience, "a list from memory", func() bool { return hit(way.words, way.labels) })
		})
	}
	if printed := c.pod(t, nil, documented(t, "")); !strings.Contains(printed, "PodList") || strings.Contains(printed, "Cache-Status") {
		t.Errorf("a pod that knows nothing of listproxy:\n%s", printed)
	}
	t.Run("the cluster's own CA", func(t *testing.T) {
		cert, key, err := c.IssueServingCert("listproxy.listproxy.svc", "kubernetes.default.svc")
		expect.NoError(t, err)
		folder := t.TempDir()
		expect.NoError(t, os.WriteFile(folder+"/tls.crt", cert, 0o600))
		expect.NoError(t, os.WriteFile(folder+"/tls.key", key, 0o600))
		c.kubectl(t, "create secret tls our-own -n listproxy --cert="+folder+"/tls.crt --key="+folder+"/tls.key")
		_, err = c.Install(t.Context(), "tls.mode=existing,tls.existingSecret=our-own") // without the ConfigMap
		expect.NoError(t, err)
		poll.Until(t, patience, "a list from memory", func() bool { return hit("# nothing else", nil) })
		c.install(t) // which makes another CA
		c.know(t)
		c.kubectl(t, "delete secret our-own -n listproxy")
	})
	t.Run("Prometheus", func(t *testing.T) { checkPrometheus(t, c) })
}

// checkPrometheus: with the configuration in docs/clients.md it finds a pod, and has asked listproxy for it.
func checkPrometheus(t *testing.T, c *tester) {
	config := pages.Block(t, "clients.md", "scrape_configs:", "")
	_, err := c.admin.CoreV1().ConfigMaps(team).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, Data: map[string]string{"prometheus.yml": config},
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	spec := documented(t, "KUBECONFIG")
	container := &spec.Containers[0]
	container.Image, container.Args = "localhost/prometheus:1", []string{"--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data"}
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: "/etc/prometheus"})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "prometheus"},
	}}})
	pod, err := c.admin.CoreV1().Pods(team).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, Spec: spec}, metav1.CreateOptions{})
	expect.NoError(t, err)
	poll.Until(t, patience, "it has found itself", func() bool {
		pod, err = c.admin.CoreV1().Pods(team).Get(t.Context(), "prometheus", metav1.GetOptions{})
		return err == nil && pod.Status.PodIP != "" && strings.Contains(get(t, "http://"+pod.Status.PodIP+":9090/api/v1/targets"), `"__meta_kubernetes_pod_name":"prometheus"`)
	})
	c.kubectl(t, "delete pod -n "+team+" prometheus --now") // a watch is in the log when it has ended
	hit := regexp.MustCompile(`"userAgent":"Prometheus/[^\n]*; hit`)
	poll.Until(t, patience, "what Prometheus has from memory is in the log", func() bool {
		return hit.MatchString(c.kubectl(t, "logs -n listproxy -l app.kubernetes.io/name=listproxy --tail=-1"))
	})
}

// get reads what a server in the cluster says, or nothing.
func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: cluster.Dialer.DialContext}}
	asked, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	expect.NoError(t, err)
	answer, err := client.Do(asked)
	if err != nil {
		return ""
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

// replicas are the processes of listproxy.
func replicas() (pids []int) {
	processes, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range processes {
		name, _ := os.ReadFile(path) // #nosec G304 -- of the kernel
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && string(name) == "listproxy\n" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// checkKilled: the kernel kills one replica. It refuses new connections to that until kube-proxy knows that it has gone.
func checkKilled(t *testing.T, c *tester) {
	poll.Until(t, patience, "replicas of before have ended", func() bool { return len(replicas()) == 2 })
	beside(t, c.through, c.direct, func() {
		expect.NoError(t, syscall.Kill(replicas()[0], syscall.SIGKILL))
		poll.Until(t, patience, "it was started again", func() bool {
			return strings.Contains(c.kubectl(t, "get pods -n listproxy -o jsonpath={.items[*].status.containerStatuses[*].restartCount}"), "1")
		})
		c.kubectl(t, "rollout status deployment/listproxy -n listproxy --timeout=5m")
	}, "connect: connection refused")
}

// checkCertificate: as docs/operate.md says, it is another one when its Secret has been deleted, of the same CA, and no pod
// is started anew for it.
func checkCertificate(t *testing.T, c *tester) {
	const pods = "get deployment listproxy -n listproxy -o jsonpath={.metadata.generation}"
	served := func() string {
		return c.kubectl(t, "get secret listproxy-tls -n listproxy -o jsonpath={.data.tls\\.crt}")
	}
	c.install(t)
	beside(t, c.through, c.direct, func() {
		old, generation := served(), c.kubectl(t, pods)
		c.kubectl(t, "delete secret listproxy-tls -n listproxy")
		c.install(t)
		if served() == old {
			t.Error("the certificate is the same")
		}
		expect.Same(t, generation, c.kubectl(t, pods))
	})
}

// checkToken: clients get another token, as from a kubelet, which client-go reads within a minute; then the first
// is none any more.
func checkToken(t *testing.T, c *tester) {
	const every = time.Minute + 15*time.Second // after which client-go has read it
	file := filepath.Join(t.TempDir(), "token")
	issue := func(bound string) {
		c.kubectl(t, "create secret generic "+bound+" -n "+team)
		token := c.kubectl(t, "create token robot -n "+team+" --bound-object-kind=Secret --bound-object-name="+bound)
		expect.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	}
	issue("first")
	through, direct := rest.CopyConfig(c.through), rest.CopyConfig(c.direct)
	for _, cfg := range []*rest.Config{through, direct} {
		cfg.BearerToken, cfg.BearerTokenFile = "", file
	}
	beside(t, through, direct, func() {
		issue("second")
		clock.Sleep(t.Context(), every)
		c.kubectl(t, "delete secret first -n "+team)
		clock.Sleep(t.Context(), every/2) // what has been accepted is forgotten
	})
}

// checkDrain: the PodDisruptionBudget lets one replica go, and keeps the other, which has nowhere else to go.
func checkDrain(t *testing.T, c *tester) {
	beside(t, c.through, c.direct, func() {
		_, err := c.Kubectl(t.Context(), "", strings.Fields("drain node --pod-selector=app.kubernetes.io/name=listproxy --ignore-daemonsets --timeout=20s")...)
		if err == nil || !strings.Contains(err.Error(), "disruption budget") {
			t.Errorf("the node was drained: %v", err)
		}
		expect.Same(t, "1", c.kubectl(t, "get deployment listproxy -n listproxy -o jsonpath={.status.readyReplicas}"))
		c.kubectl(t, "uncordon node")
		c.kubectl(t, "rollout status deployment/listproxy -n listproxy --timeout=5m")
	})
}

// checkBypass: there and back, clients go on.
func checkBypass(t *testing.T, c *tester) {
	beside(t, c.through, c.direct, func() {
		if notes := c.install(t, "bypass=true"); !strings.Contains(notes, "WARNING: bypass is on") {
			t.Errorf("the notes:\n%s", notes)
		}
		if printed := c.pod(t, nil, documented(t, "KUBECONFIG")); strings.Contains(printed, "Cache-Status") {
			t.Errorf("not from kube-apiserver itself:\n%s", printed)
		}
		c.install(t)
	})
	poll.Until(t, patience, "a list from memory", func() bool {
		return strings.Contains(c.pod(t, nil, documented(t, "KUBECONFIG")), "Cache-Status: listproxy; hit")
	})
}

// A trace as Jaeger tells it.
type trace struct {
	Spans []struct {
		SpanID, OperationName, ProcessID string
		References                       []struct{ SpanID string } // its parent's
	}
	Processes map[string]struct{ ServiceName string }
}

// checkTraces: in Jaeger, the steps of a list from memory are below its request, the span of kube-apiserver is below that
// of a forwarded list, and feeds have traces of their own.
func checkTraces(t *testing.T, c *tester) {
	c.kubectl(t, "delete namespace tracing")
	for line := range strings.Lines(pages.Block(t, "observability.md", "kubectl create namespace tracing", "jaeger")) {
		if command, found := strings.CutPrefix(line, "kubectl "); found && !strings.Contains(line, "port-forward") {
			c.kubectl(t, command)
		}
	}
	c.kubectl(t, "rollout status deployment/jaeger -n tracing --timeout=5m")
	admin, err := c.Through(t.Context(), c.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	client, err := kubernetes.NewForConfig(admin)
	expect.NoError(t, err)
	// below holds spans, by service and the beginning of the name, and the parent of each.
	traced := func(operation string, below map[string]string) func() bool {
		return func() bool {
			_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
			expect.NoError(t, err)
			_, err = client.CoreV1().Secrets(team).List(t.Context(), metav1.ListOptions{})
			expect.NoError(t, err)
			var found struct{ Data []trace }
			address := c.kubectl(t, "get pods -n tracing -o jsonpath={.items[*].status.podIP}")
			text := get(t, "http://"+address+":16686/api/traces?service=listproxy&limit=200&operation="+operation)
			_ = json.Unmarshal([]byte(text), &found)
			return slices.ContainsFunc(found.Data, func(t trace) bool {
				names := map[string]string{}
				for _, span := range t.Spans {
					names[span.SpanID] = t.Processes[span.ProcessID].ServiceName + " " + span.OperationName
				}
				found := map[string]string{}
				for _, span := range t.Spans {
					for child, parent := range below {
						if strings.HasPrefix(names[span.SpanID], child) &&
							(parent == "" || len(span.References) > 0 && names[span.References[0].SpanID] == parent) {
							found[child] = parent
						}
					}
				}
				return maps.Equal(below, found)
			})
		}
	}
	for name, came := range map[string]func() bool{
		"a hit": traced("GET%20pods", map[string]string{
			"listproxy review": "listproxy GET pods", "listproxy snapshot": "listproxy GET pods", "listproxy write": "listproxy GET pods",
		}),
		"a forward": traced("GET%20secrets", map[string]string{
			"listproxy forward": "listproxy GET secrets", "apiserver GET /api": "listproxy forward",
		}),
		"a feed": traced("feed%20probe", map[string]string{"listproxy feed probe": ""}), // that of a watch comes when it ends
	} {
		t.Run(name, func(t *testing.T) { poll.Until(t, patience, "it is in Jaeger", came) })
	}
}
