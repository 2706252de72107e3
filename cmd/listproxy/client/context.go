package client

import "k8s.io/client-go/tools/clientcmd"

// usualKubeconfig names the files that are read if no --kubeconfig is given.
const usualKubeconfig = "$KUBECONFIG or ~/.kube/config"

// loadKubeconfig returns a loader for the kubeconfig at path, or for [usualKubeconfig] if path is empty. The loader
// uses the named context, or the current one if contextName is empty. If none of the usual files exists, the kubeconfig
// is empty.
func loadKubeconfig(path, contextName string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	overrides := &clientcmd.ConfigOverrides{CurrentContext: contextName}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}
