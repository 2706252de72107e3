package chart

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/test/expect"
)

// TestHelmTestIsLetIn: clientsFrom keeps others out, not the pod of helm test.
func TestHelmTestIsLetIn(t *testing.T) {
	all := objects(t, mustTemplate(t, "networkPolicy: {clientsFrom: [{podSelector: {matchLabels: {app: web}}}]}"))
	policy := one[*networkingv1.NetworkPolicy](t, all, nil)
	in := func(pod map[string]string) bool {
		return slices.ContainsFunc(policy.Spec.Ingress[0].From, func(peer networkingv1.NetworkPolicyPeer) bool {
			selector, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
			expect.NoError(t, err)
			return peer.NamespaceSelector == nil && peer.IPBlock == nil && selector.Matches(labels.Set(pod))
		})
	}
	for who, tt := range map[string]struct {
		labels map[string]string
		in     bool
	}{
		"helm test":        {one[*corev1.Pod](t, all, nil).Labels, true},
		"those named":      {map[string]string{"app": "web"}, true},
		"others":           {map[string]string{"app": "other"}, false},
		"listproxy itself": {one[*appsv1.Deployment](t, all, nil).Spec.Template.Labels, false},
	} {
		if in(tt.labels) != tt.in {
			t.Errorf("%s let in: %t", who, !tt.in)
		}
	}
}

// TestHelmTestAsks: for one resource that the policy keeps and a Role can give, and may list that
// and nothing else.
func TestHelmTestAsks(t *testing.T) {
	for name, tt := range map[string]struct {
		rules, path, group, resource string
		fromMemory                   bool
	}{
		"default":             {"", "/api/v1/namespaces/proxies/pods?resourceVersion=0&limit=1", "", "pods", true},
		"no pods":             {"{group: '', resource: services, cache: onDemand}", "/api/v1/namespaces/proxies/services?resourceVersion=0&limit=1", "", "services", true},
		"a group":             {"{group: batch, resource: cronjobs, cache: onDemand}", "/apis/batch/v1/namespaces/proxies/cronjobs?resourceVersion=0&limit=1", "batch", "cronjobs", true},
		"in no namespace":     {"{group: '', resource: nodes, cache: onDemand}", "/api/v1/namespaces/proxies/pods?resourceVersion=0&limit=1", "", "pods", false},
		"named and not kept":  {"{group: '', resource: pods, cache: never}, {group: apps, resource: deployments, cache: onDemand}", "/apis/apps/v1/namespaces/proxies/deployments?resourceVersion=0&limit=1", "apps", "deployments", true},
		"a resource of users": {"{group: example.com, resource: widgets, cache: onDemand}", "/api/v1/namespaces/proxies/pods?resourceVersion=0&limit=1", "", "pods", false},
	} {
		t.Run(name, func(t *testing.T) {
			text := "{}"
			if tt.rules != "" {
				text = "{eager: [], policy: {resources: [" + tt.rules + "]}}"
			}
			all := objects(t, mustTemplate(t, text))
			pod := one[*corev1.Pod](t, all, nil)
			expect.Same(t, []string{"list asks for " + tt.path}, asks(pod.Spec.Containers))
			// What the policy does not keep is forwarded, and a test that asked for more would fail.
			container := pod.Spec.Containers[0]
			if slices.Contains(container.Args, "--allow-forwarded") == tt.fromMemory || container.Args[0] != "try" {
				t.Errorf("asks with %q", container.Args)
			}
			if container.Image != one[*appsv1.Deployment](t, all, nil).Spec.Template.Spec.Containers[0].Image {
				t.Errorf("the image is %s", container.Image)
			}
			ofTest := func(meta metav1.Object) bool { return meta.GetName() == pod.Name }
			role := one(t, all, func(r *rbacv1.Role) bool { return ofTest(r) })
			want := []rbacv1.PolicyRule{{APIGroups: []string{tt.group}, Resources: []string{tt.resource}, Verbs: []string{"list"}}}
			if diff := cmp.Diff(want, role.Rules); diff != "" || role.Namespace != "proxies" {
				t.Errorf("may, in %s (-want +got):\n%s", role.Namespace, diff)
			}
			account := one(t, all, func(a *corev1.ServiceAccount) bool { return ofTest(a) })
			if pod.Spec.ServiceAccountName != account.Name {
				t.Errorf("asks as %s", pod.Spec.ServiceAccountName)
			}
		})
	}
}

// asks says what containers of helm test ask for.
func asks(containers []corev1.Container) []string {
	var all []string
	for _, c := range containers {
		all = append(all, c.Name+" asks for "+c.Args[len(c.Args)-1])
	}
	return all
}
