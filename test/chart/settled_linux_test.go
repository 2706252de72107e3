package chart

import (
	"slices"
	"testing"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// ofItself is what kube-apiserver makes by itself only after it says that it is ready, as
// everything has it: by the hooks bootstrap-controller, start-system-namespaces-controller,
// start-legacy-token-tracking-controller and start-cluster-authentication-info-controller
// (k8s.io/kubernetes/pkg/controlplane), of which the first tries again after ten seconds, the
// second after a minute.
var ofItself = []string{
	"/configmaps/kube-system/extension-apiserver-authentication",
	"/configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking",
	"/namespaces//default",
	"/namespaces//kube-node-lease",
	"/namespaces//kube-public",
	"/namespaces//kube-system",
	"/services/default/kubernetes", // later than its IPAddress
}

// untouched are all objects of a cluster that nothing has been installed in, when kube-apiserver
// has made its own.
func (c *cluster) untouched(t *testing.T) []string {
	t.Helper()
	poll.Until(t, patience, "all that kube-apiserver makes by itself", func() bool {
		all := c.everything(t)
		return !slices.ContainsFunc(ofItself, func(object string) bool { return !slices.Contains(all, object) })
	})
	return c.everything(t)
}
