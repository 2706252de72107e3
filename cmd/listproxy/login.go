package main

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// checkLogin refuses a kubeconfig whose current user has nothing to log in with: the API server
// would take listproxy for system:anonymous, and refuse it everything. What else may be wrong with
// the file is for others to say.
func checkLogin(kubeconfig string) error {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	const what = "give listproxy an account of its own, as docs/rbac.yaml has it: kubectl config set-credentials NAME --token=…, and " +
		"set-context --current --user NAME"
	current, found := config.Contexts[config.CurrentContext]
	if !found {
		return fmt.Errorf("--kubeconfig %s: the current context %q is not in the file: kubectl config use-context says which one to use",
			kubeconfig, config.CurrentContext)
	}
	if current.AuthInfo == "" {
		return fmt.Errorf("--kubeconfig %s: the context %q names no user: %s", kubeconfig, config.CurrentContext, what)
	}
	login, found := config.AuthInfos[current.AuthInfo]
	if !found {
		return fmt.Errorf("--kubeconfig %s: the user %q of the context %q is not in the file: %s", kubeconfig, current.AuthInfo,
			config.CurrentContext, what)
	}
	if !hasLogin(login) {
		return fmt.Errorf("--kubeconfig %s: the user %q of the context %q has no credentials (no token, client "+
			"certificate, password or plugin): %s",
			kubeconfig, current.AuthInfo, config.CurrentContext, what)
	}
	return nil
}

// hasLogin says whether a user has anything to log in with.
func hasLogin(u *api.AuthInfo) bool {
	return u.Token != "" || u.TokenFile != "" || u.Username != "" || u.Exec != nil || u.AuthProvider != nil ||
		(len(u.ClientCertificateData) > 0 || u.ClientCertificate != "") && (len(u.ClientKeyData) > 0 || u.ClientKey != "")
}
