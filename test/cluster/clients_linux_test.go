package cluster_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/pages"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// runPod runs a pod of the team to its end, and returns its output.
func (c *tester) runPod(t *testing.T, labels map[string]string, spec corev1.PodSpec) string {
	t.Helper()
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.ServiceAccountName = "robot"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "client-", Labels: labels}, Spec: spec}
	pod, err := c.admin.CoreV1().Pods(team).Create(t.Context(), pod, metav1.CreateOptions{})
	expect.NoError(t, err)
	poll.Until(t, patience, "the pod has ended", func() bool {
		pod, err = c.admin.CoreV1().Pods(team).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
	})
	output := c.kubectl(t, "logs -n "+team+" "+pod.Name)
	c.kubectl(t, "delete pod -n "+team+" "+pod.Name)
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("the pod failed:\n%s", output)
	}
	return output
}

// plainPod makes documentedPod return a pod that knows nothing of listproxy.
const plainPod = ""

// documentedPod returns the pod in docs/clients.md that contains a text, or a plainPod. It makes kubectl the pod's only
// container. kubectl finds its configuration in a pod as client-go does, lists pods, and prints the response headers (-v=8).
func documentedPod(t *testing.T, contains string) corev1.PodSpec {
	t.Helper()
	var pod struct{ Spec corev1.PodSpec }
	text := "spec: {containers: [{name: robot}]}"
	if contains != plainPod {
		text = pages.Block(t, "clients.md", "spec:", contains)
	}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(text), &pod))
	container := &pod.Spec.Containers[0]
	container.Image = "localhost/kubectl:1"
	container.Args = []string{"get", "--raw", "/api/v1/namespaces/" + team + "/pods?resourceVersion=0", "-v=8"}
	return pod.Spec
}

// awaitHit runs a pod of docs/clients.md, with labels, again and again until its list is from memory.
func (c *tester) awaitHit(t *testing.T, labels map[string]string, contains string) {
	t.Helper()
	poll.Until(t, patience, "a list from memory", func() bool {
		return strings.Contains(c.runPod(t, labels, documentedPod(t, contains)), listFromMemory)
	})
}

// checkClientPods checks that pods get lists from memory if they are as in docs/clients.md, or if the chart's admission policy
// changes them. Other pods must get answers of kube-apiserver itself.
func checkClientPods(t *testing.T, c *tester) {
	for name, tt := range map[string]struct {
		contains string // which pod of docs/clients.md, see documentedPod
		labels   map[string]string
	}{
		"kubeconfig": {contains: "KUBECONFIG"},
		"in-cluster": {contains: "projected:"},
		"label":      {contains: plainPod, labels: map[string]string{"listproxy.io/client": "true"}},
	} {
		t.Run(name, func(t *testing.T) { c.awaitHit(t, tt.labels, tt.contains) })
	}
	output := c.runPod(t, nil, documentedPod(t, plainPod))
	if !strings.Contains(output, "PodList") || strings.Contains(output, "Cache-Status") {
		t.Errorf("a plain pod:\n%s", output)
	}
	t.Run("certificate of the cluster's CA", func(t *testing.T) {
		cert, key, err := c.IssueServingCert("listproxy.listproxy.svc", "kubernetes.default.svc")
		expect.NoError(t, err)
		folder := t.TempDir()
		expect.NoError(t, os.WriteFile(folder+"/tls.crt", cert, 0o600))
		expect.NoError(t, os.WriteFile(folder+"/tls.key", key, 0o600))
		c.kubectl(t, "create secret tls our-own -n listproxy --cert="+folder+"/tls.crt --key="+folder+"/tls.key")
		_, err = c.Install(t.Context(), "tls.mode=existing,tls.existingSecret=our-own") // without clients.inject
		expect.NoError(t, err)
		c.awaitHit(t, nil, "# nothing else")
		c.install(t) // with a new CA, so the clients are outdated
		c.createClients(t)
		c.kubectl(t, "delete secret our-own -n listproxy")
	})
	t.Run("Prometheus", func(t *testing.T) { checkPrometheus(t, c) })
}

// checkPrometheus checks that Prometheus, with the configuration in docs/clients.md, finds a pod by a request that listproxy
// answered from memory.
func checkPrometheus(t *testing.T, c *tester) {
	config := pages.Block(t, "clients.md", "scrape_configs:", "")
	_, err := c.admin.CoreV1().ConfigMaps(team).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, Data: map[string]string{"prometheus.yml": config},
	}, metav1.CreateOptions{})
	expect.NoError(t, err)
	spec := documentedPod(t, "KUBECONFIG")
	container := &spec.Containers[0]
	container.Image = "localhost/prometheus:1"
	container.Args = []string{"--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data"}
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: "/etc/prometheus"})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "prometheus"},
	}}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, Spec: spec}
	_, err = c.admin.CoreV1().Pods(team).Create(t.Context(), pod, metav1.CreateOptions{})
	expect.NoError(t, err)
	poll.Until(t, patience, "Prometheus has found its own pod", func() bool {
		pod, err := c.admin.CoreV1().Pods(team).Get(t.Context(), "prometheus", metav1.GetOptions{})
		if err != nil || pod.Status.PodIP == "" {
			return false
		}
		targets := get(t, "http://"+pod.Status.PodIP+":9090/api/v1/targets")
		return strings.Contains(targets, `"__meta_kubernetes_pod_name":"prometheus"`)
	})
	c.kubectl(t, "delete pod -n "+team+" prometheus --now") // ends its watch, which is logged at its end
	hit := regexp.MustCompile(`"userAgent":"Prometheus/[^\n]*; hit`)
	poll.Until(t, patience, "a hit of Prometheus in the log", func() bool {
		return hit.MatchString(c.kubectl(t, "logs -n listproxy -l app.kubernetes.io/name=listproxy --tail=-1"))
	})
}
