package client

import (
	"fmt"
	"os"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
)

// loadKubeconfig loads the kubeconfig at path, or $KUBECONFIG or ~/.kube/config if path is empty. It uses the named
// context, or the current one if contextName is empty.
func loadKubeconfig(path, contextName string) (clientcmd.ClientConfig, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	exists := func(file string) bool { _, err := os.Stat(file); return err == nil }
	// client-go takes a missing default file for an empty one.
	if path == "" && !slices.ContainsFunc(rules.Precedence, exists) {
		return nil, fmt.Errorf("there is no kubeconfig to take the context from: KUBECONFIG or the default is %q, which "+
			"cannot be read: correct that, or give --kubeconfig", rules.Precedence)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: contextName}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
}
