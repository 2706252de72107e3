// Package workload makes pods that look like a cluster's, for the demo and for benchmarks.
package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// application is what many pods run.
type application struct {
	name, team, tier string
	port             int32
}

// applications returns all applications.
func applications() []application {
	return []application{
		{name: "api-gateway", team: "edge", tier: "frontend", port: 8443},
		{name: "cart", team: "shop", tier: "backend", port: 8080},
		{name: "catalog", team: "shop", tier: "backend", port: 8080},
		{name: "checkout", team: "shop", tier: "frontend", port: 3000},
		{name: "fraud-scoring", team: "payments", tier: "batch", port: 9000},
		{name: "ledger", team: "payments", tier: "backend", port: 8080},
		{name: "notifications", team: "messaging", tier: "batch", port: 8080},
		{name: "recommendations", team: "search", tier: "backend", port: 8501},
		{name: "search-indexer", team: "search", tier: "batch", port: 9200},
		{name: "session-store", team: "platform", tier: "cache", port: 6379},
		{name: "thumbnailer", team: "media", tier: "batch", port: 8080},
		{name: "web", team: "edge", tier: "frontend", port: 3000},
	}
}

// Applications returns the number of applications. Pod i runs the same as pod i+Applications().
func Applications() int { return len(applications()) }

// Pods makes pods, 7 to 8 kB each in JSON with kube-apiserver's defaults and managed fields. Equal numbers make equal pods.
type Pods struct {
	// Nodes is the number of nodes over which pods are spread.
	Nodes int
}

// The streams of random numbers for a pod, its template and its status.
const (
	podStream      = 1
	templateStream = 2
	statusStream   = 3
)

// Pod returns the i-th pod of a namespace, as it is after scheduling.
func (p Pods) Pod(i int, namespace string) *corev1.Pod {
	all := applications()
	app := all[i%len(all)]
	random := rand.New(rand.NewPCG(uint64(i), podStream))                            // #nosec G115 -- a seed
	hash := hexDigits(rand.New(rand.NewPCG(uint64(i%len(all)), templateStream)), 10) // #nosec G115 -- a seed
	replicaSet := app.name + "-" + hash
	labels := map[string]string{
		"app.kubernetes.io/name":       app.name,
		"app.kubernetes.io/version":    fmt.Sprintf("%d.%d.%d", 1+i%3, i%17, i%7),
		"app.kubernetes.io/part-of":    app.team,
		"app.kubernetes.io/managed-by": "Helm",
		"tier":                         app.tier,
		"pod-template-hash":            hash,
	}
	controller := true
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      replicaSet + "-" + unique(i),
			Namespace: namespace,
			Labels:    labels,
			Annotations: map[string]string{
				"prometheus.io/scrape": "true",
				"prometheus.io/port":   strconv.Itoa(int(app.port)),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: replicaSet,
				UID: types.UID("5f0d3a6e-0000-4000-8000-" + hexDigits(random, 12)), Controller: &controller, BlockOwnerDeletion: &controller,
			}},
		},
		Spec: p.spec(i, app),
	}
}

func (p Pods) spec(i int, app application) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName:           p.Node(i),
		ServiceAccountName: app.name,
		Containers:         []corev1.Container{appContainer(app), sidecar()},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: app.name + "-config"},
			}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
}

// Node returns the name of the i-th pod's node.
func (p Pods) Node(i int) string { return fmt.Sprintf("node-%04d", i%p.Nodes) }

func appContainer(app application) corev1.Container {
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}},
		PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3,
	}
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	return corev1.Container{
		Name: app.name, Image: "registry.example.com/" + app.team + "/" + app.name + ":stable",
		Args:  []string{"--config=/etc/app/config.yaml", "--listen=0.0.0.0"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: app.port}},
		Env: []corev1.EnvVar{
			field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"),
			{Name: "LOG_LEVEL", Value: "info"},
			{Name: "DATABASE_URL", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: app.name + "-db"}, Key: "url",
			}}},
		},
		Resources:     quantities("250m", "512Mi"),
		LivenessProbe: probe, ReadinessProbe: probe,
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/app", ReadOnly: true},
			{Name: "tmp", MountPath: "/tmp"},
		},
	}
}

func sidecar() corev1.Container {
	return corev1.Container{
		Name: "log-shipper", Image: "registry.example.com/platform/log-shipper:2.4.1",
		Args:      []string{"--input=/var/log/app", "--output=tcp://logs.platform.svc:5170"},
		Resources: quantities("20m", "48Mi"),
	}
}

func quantities(cpu, memory string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	return corev1.ResourceRequirements{Requests: list}
}

// Running returns the status that a kubelet reports for the i-th pod when it runs.
func (p Pods) Running(i int, pod *corev1.Pod) corev1.PodStatus {
	at := metav1.NewTime(pod.CreationTimestamp.Add(3 * time.Second))
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16&0xff, i>>8&0xff, i&0xff)
	host := fmt.Sprintf("192.168.%d.%d", (i%p.Nodes)>>8&0xff, (i%p.Nodes)&0xff)
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: pod.Status.QOSClass, StartTime: &at,
		PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, HostIP: host, HostIPs: []corev1.HostIP{{IP: host}},
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	random := rand.New(rand.NewPCG(uint64(i), statusStream)) // #nosec G115 -- a seed
	for _, c := range pod.Spec.Containers {
		started := true
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &started,
			ImageID:     c.Image + "@sha256:" + hexDigits(random, 64),
			ContainerID: "containerd://" + hexDigits(random, 64),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	return status
}

// unique returns the end of the name of the i-th pod: five letters and digits, which look random and differ for each i below
// 36^5.
func unique(i int) string {
	const names = 36 * 36 * 36 * 36 * 36
	const factor = 2654435761 // a prime, near 2^32 divided by the golden ratio: neighbours get names that are far apart
	text := strconv.FormatInt(int64(i)*factor%names, 36)
	return strings.Repeat("0", 5-len(text)) + text
}

// hexDigits returns n random hexadecimal digits.
func hexDigits(random *rand.Rand, n int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, n)
	for i := range b {
		b[i] = digits[random.IntN(len(digits))]
	}
	return string(b)
}
