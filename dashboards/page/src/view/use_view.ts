// The view in the address: the only place where it is kept.
import { useCallback, useEffect, useState } from "preact/hooks";
import { hashOf, viewOf, type View } from "./view";

export type ChangeView = (change: Partial<View>, how?: "push" | "replace") => void;

export function useView(): [View, ChangeView] {
  const [view, setView] = useState(() => viewOf(location.hash));
  useEffect(() => {
    const read = () => setView(viewOf(location.hash));
    addEventListener("hashchange", read);
    addEventListener("popstate", read);
    return () => {
      removeEventListener("hashchange", read);
      removeEventListener("popstate", read);
    };
  }, []);
  const change = useCallback<ChangeView>((part, how = "push") => {
    const next = { ...viewOf(location.hash), ...part };
    const hash = hashOf(next);
    if (hash === hashOf(viewOf(location.hash))) return;
    if (how === "push") history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
    setView(next);
  }, []);
  return [view, change];
}
