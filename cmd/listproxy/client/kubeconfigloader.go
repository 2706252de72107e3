package client

import "k8s.io/client-go/tools/clientcmd"

// usualKubeconfig names the files that are read if no --kubeconfig is given.
const usualKubeconfig = "$KUBECONFIG or ~/.kube/config"

// kubeconfigLoader returns a loader of the kubeconfig at path, or of [usualKubeconfig] if path is empty. The kubeconfig is
// empty if none of the usual files exists. The loader's ClientConfig is for the named context, or for the current one if
// contextName is empty. Its RawConfig has all contexts.
func kubeconfigLoader(path, contextName string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	overrides := &clientcmd.ConfigOverrides{CurrentContext: contextName}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}
