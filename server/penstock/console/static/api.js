// Asks the server, with the token if one is needed. The token is never part of an address.

const KEPT = "penstock-token";

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

let asking = null;

/** The JSON of a view. ApiError if the server says no; TypeError if it can't be reached. */
export async function get(view, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const address = `api/${view}${query.size ? `?${query}` : ""}`;
  for (;;) {
    const token = sessionStorage.getItem(KEPT);
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const response = await fetch(address, { headers, cache: "no-store", credentials: "omit" });
    if (response.status === 401) {
      asking ??= askForToken(Boolean(token)).finally(() => { asking = null; });
      await asking;
      continue;
    }
    const answer = await response.json();
    if (!response.ok) throw new ApiError(response.status, answer.error);
    return answer;
  }
}

function askForToken(wasWrong) {
  const dialog = document.getElementById("sign-in");
  const input = document.getElementById("token");
  document.getElementById("sign-in-problem").textContent = wasWrong ? "This token is not the right one." : "";
  input.value = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEPT, input.value.trim());
      input.value = "";
      done();
    }, { once: true });
  });
}
